#include "model/hf/tensor_map.h"

#include <utility>

#include "core/base/check.h"

namespace headwise {

void TensorMap::Declare(const std::string& tensor, const Shape& shape) {
  const auto [it, inserted] = tensors_.emplace(tensor, shape);
  HW_CHECK(inserted || it->second == shape) << tensor;
}

void TensorMap::Add(const std::string& parameter, const Shape& shape,
                    std::vector<TensorPiece> pieces) {
  HW_CHECK(index_.emplace(parameter, parameters_.size()).second) << parameter;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].parameter = parameter;
    pieces_of_[pieces[i].tensor].emplace_back(parameters_.size(), i);
  }
  parameters_.push_back({parameter, shape, std::move(pieces)});
}

void TensorMap::Same(const std::string& parameter, const std::string& tensor, const Shape& shape) {
  Declare(tensor, shape);
  Add(parameter, shape,
      {{.tensor = tensor,
        .parameter = "",
        .count = {1, 1, NumElements(shape)},
        .our_stride = {0, 0, 1},
        .their_stride = {0, 0, 1}}});
}

void TensorMap::Packed(const std::string& parameter, const std::array<std::string, 3>& qkv,
                       const PackedQkv& layout, std::int64_t width) {
  const auto shape = [&](std::int64_t rows) {
    return width == 0 ? Shape{rows} : Shape{rows, width};
  };
  const std::int64_t head = layout.head_dim() * (width == 0 ? 1 : width);
  std::vector<TensorPiece> pieces;
  const auto add = [&](const std::string& tensor, std::int64_t index, std::int64_t slot) {
    pieces.push_back({.tensor = tensor,
                      .parameter = "",
                      .count = {1, 1, head},
                      .our_begin = slot * head,
                      .their_begin = index * head,
                      .our_stride = {0, 0, 1},
                      .their_stride = {0, 0, 1}});
  };
  // Tensor by tensor, so that each is read once.
  Declare(qkv[0], shape(layout.query_heads() * layout.head_dim()));
  for (std::int64_t h = 0; h < layout.query_heads(); ++h) add(qkv[0], h, layout.QuerySlot(h));
  Declare(qkv[1], shape(layout.kv_heads() * layout.head_dim()));
  for (std::int64_t g = 0; g < layout.kv_heads(); ++g) add(qkv[1], g, layout.KeySlot(g));
  Declare(qkv[2], shape(layout.kv_heads() * layout.head_dim()));
  for (std::int64_t g = 0; g < layout.kv_heads(); ++g) add(qkv[2], g, layout.ValueSlot(g));
  Add(parameter, shape(layout.row_width()), std::move(pieces));
}

void TensorMap::Stack(const std::string& parameter, const std::vector<std::string>& tensors,
                      const Shape& shape) {
  const std::int64_t elements = NumElements(shape);
  std::vector<TensorPiece> pieces;
  for (std::size_t e = 0; e < tensors.size(); ++e) {
    Declare(tensors[e], shape);
    pieces.push_back({.tensor = tensors[e],
                      .parameter = "",
                      .count = {1, 1, elements},
                      .our_begin = static_cast<std::int64_t>(e) * elements,
                      .our_stride = {0, 0, 1},
                      .their_stride = {0, 0, 1}});
  }
  Shape stacked = {static_cast<std::int64_t>(tensors.size())};
  stacked.insert(stacked.end(), shape.begin(), shape.end());
  Add(parameter, stacked, std::move(pieces));
}

void TensorMap::Rows(const std::string& parameter, const std::string& tensor,
                     const std::array<std::int64_t, 3>& experts_out_in, std::int64_t rows,
                     std::int64_t first) {
  const auto& [experts, out, in] = experts_out_in;
  Declare(tensor, {experts, rows, in});
  Add(parameter, {experts, out, in},
      {{.tensor = tensor,
        .parameter = "",
        .count = {1, experts, out * in},
        .their_begin = first * in,
        .our_stride = {0, out * in, 1},
        .their_stride = {0, rows * in, 1}}});
}

void TensorMap::Transposed(const std::string& parameter, const std::string& tensor,
                           const std::array<std::int64_t, 3>& experts_out_in, std::int64_t columns,
                           std::int64_t first, std::int64_t step) {
  const auto& [experts, out, in] = experts_out_in;
  Declare(tensor, {experts, in, columns});
  Add(parameter, {experts, out, in},
      {{.tensor = tensor,
        .parameter = "",
        .count = {experts, out, in},
        .their_begin = first,
        .our_stride = {out * in, in, 1},
        .their_stride = {in * columns, step, columns}}});
}

void TensorMap::Columns(const std::string& parameter, const std::string& tensor,
                        std::int64_t experts, std::int64_t out, std::int64_t columns,
                        std::int64_t first, std::int64_t step) {
  Declare(tensor, {experts, columns});
  Add(parameter, {experts, out},
      {{.tensor = tensor,
        .parameter = "",
        .count = {1, experts, out},
        .their_begin = first,
        .our_stride = {0, out, 1},
        .their_stride = {0, columns, step}}});
}

const ParameterMap* TensorMap::Find(const std::string& parameter) const {
  const auto it = index_.find(parameter);
  return it == index_.end() ? nullptr : &parameters_[it->second];
}

std::vector<const TensorPiece*> TensorMap::PiecesOf(const std::string& tensor) const {
  std::vector<const TensorPiece*> pieces;
  const auto it = pieces_of_.find(tensor);
  if (it == pieces_of_.end()) return pieces;
  for (const auto& [parameter, piece] : it->second) {
    pieces.push_back(&parameters_[parameter].pieces[piece]);
  }
  return pieces;
}

}  // namespace headwise
