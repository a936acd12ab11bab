// TensorMap: which tensors of Hugging Face make up each of our parameters, element by element, as
// data that is read in both directions.
//
//   TensorMap map;
//   map.Same("final_norm.weight", "model.norm.weight", {64});
//   map.Stack("layers.0.ffn.w1", {"...experts.0.gate_proj.weight", ...}, {32, 64});
//   for (const ParameterMap& parameter : map.parameters()) { ... parameter.pieces ... }
//
// Every element of every parameter, and of every tensor, is in exactly one piece.
#ifndef HEADWISE_MODEL_HF_TENSOR_MAP_H_
#define HEADWISE_MODEL_HF_TENSOR_MAP_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/heads/packed_qkv.h"
#include "core/tensor/tensor.h"

namespace headwise {

// Where elements (i, j, k), 0 <= i < count[0] and so on, lie in both.
struct TensorPiece {
  std::string tensor;     // Hugging Face's name
  std::string parameter;  // ours
  std::array<std::int64_t, 3> count = {1, 1, 1};
  std::int64_t our_begin = 0, their_begin = 0;         // of element (0, 0, 0)
  std::array<std::int64_t, 3> our_stride = {0, 0, 0};  // in elements
  std::array<std::int64_t, 3> their_stride = {0, 0, 0};
};

struct ParameterMap {
  std::string parameter;
  Shape shape;
  std::vector<TensorPiece> pieces;
};

class TensorMap {
 public:
  // One tensor, as it is.
  void Same(const std::string& parameter, const std::string& tensor, const Shape& shape);
  // q, k and v as the rows of one packed weight [row_width, width], or, with width 0, as those of
  // a packed bias [row_width].
  void Packed(const std::string& parameter, const std::array<std::string, 3>& qkv,
              const PackedQkv& layout, std::int64_t width);
  // One tensor of `shape` for each expert, stacked as [E, shape...].
  void Stack(const std::string& parameter, const std::vector<std::string>& tensors,
             const Shape& shape);
  // [E, out, in], of which a tensor [E, rows, in] holds output o in row `first` + o.
  void Rows(const std::string& parameter, const std::string& tensor,
            const std::array<std::int64_t, 3>& experts_out_in, std::int64_t rows,
            std::int64_t first);
  // [E, out, in], of which a tensor [E, in, columns] holds output o in column `first` + o `step`.
  void Transposed(const std::string& parameter, const std::string& tensor,
                  const std::array<std::int64_t, 3>& experts_out_in, std::int64_t columns,
                  std::int64_t first, std::int64_t step);
  // [E, out], of which a tensor [E, columns] holds output o in column `first` + o `step`.
  void Columns(const std::string& parameter, const std::string& tensor, std::int64_t experts,
               std::int64_t out, std::int64_t columns, std::int64_t first, std::int64_t step);

  // In the order of the calls; one entry a parameter.
  const std::vector<ParameterMap>& parameters() const { return parameters_; }
  const ParameterMap* Find(const std::string& parameter) const;
  // Their shapes, by name.
  const std::map<std::string, Shape>& tensors() const { return tensors_; }
  // The pieces of one tensor, in the order of the parameters.
  std::vector<const TensorPiece*> PiecesOf(const std::string& tensor) const;

 private:
  void Add(const std::string& parameter, const Shape& shape, std::vector<TensorPiece> pieces);
  // A tensor of this shape; the same each time (checked).
  void Declare(const std::string& tensor, const Shape& shape);

  std::vector<ParameterMap> parameters_;
  std::map<std::string, std::size_t> index_;  // parameter -> position
  std::map<std::string, Shape> tensors_;
  // tensor -> (parameter, piece) positions
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> pieces_of_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_TENSOR_MAP_H_
