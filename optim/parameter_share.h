// ParameterShare: where the parts that ranks hold of a parameter lie in the whole.
//
// A parameter on ranks has this rank's share as its value, and a layout that says of what
// (core/parallel/tensor_layout.h). The optimizer needs the whole's shape and head blocks, and which
// part of them is here:
//
//   HW_ASSIGN_OR_RETURN(const ParameterShare share, ParameterShare::Create(parameter, rank));
//   share.extent(kRows);              // 160: rows of the whole
//   share.Of(rank)[kRows];            // rows [40, 80) are this rank's
//   HW_ASSIGN_OR_RETURN(const Parameter whole, share.Whole(parameter));   // on Device::kMeta
//
// A parameter is seen as [batch, rows, columns]: a vector is one row, a matrix a batch of one,
// experts [E, out, in] a batch of E. Without a layout everything is here. Only what is S has a
// place in the whole; R and I count for nothing here.
#ifndef HEADWISE_OPTIM_PARAMETER_SHARE_H_
#define HEADWISE_OPTIM_PARAMETER_SHARE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/mesh.h"
#include "optim/parameter.h"

namespace headwise {

struct Interval {
  std::int64_t begin = 0, size = 0;
  std::int64_t end() const { return begin + size; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Of a parameter seen as [batch, rows, columns].
enum ParameterDim { kBatch, kRows, kColumns };
using ShareBox = std::array<Interval, 3>;

class ParameterShare {
 public:
  // Of a value that is `rank`'s. kInvalidArgument, naming the parameter, what is wrong and what to
  // try: a value that is V or P on an axis, shares of unequal size, a cut parameter of more than
  // three dimensions, a value whose shape or dtype is not what its layout says, head blocks that
  // the layout would cut.
  static absl::StatusOr<ParameterShare> Create(const Parameter& parameter, std::int64_t rank);

  const LayoutType& layout() const { return layout_; }  // undefined: none
  // One rank where there is no layout.
  const Mesh& mesh() const { return mesh_; }
  MeshView view() const { return view_; }
  std::int64_t extent(ParameterDim dim) const { return extent_[dim]; }
  ShareBox Of(std::int64_t rank) const;
  // The axes that cut a dimension, coarsest first; of all dimensions, ascending.
  std::vector<int> AxesOf(ParameterDim dim) const;
  std::vector<int> Axes() const;

  // The parameter as a single rank would have it, on Device::kMeta: the whole shape, and the head
  // blocks of all ranks. The kv group of a head is its place along the factor G of the dimension,
  // where that is what is cut (core/parallel/factored_dim.h).
  absl::StatusOr<Parameter> Whole(const Parameter& parameter) const;

 private:
  int TensorDim(ParameterDim dim) const { return static_cast<int>(dim) + tensor_rank_ - 3; }

  LayoutType layout_;
  Mesh mesh_;
  MeshView view_ = MeshView::kDense;
  int tensor_rank_ = 0;
  std::array<std::int64_t, 3> extent_ = {1, 1, 1};
};

// "tp", "tp_kv,tp_rep": for messages and accounts.
std::string AxisNames(const Mesh& mesh, MeshView view, const std::vector<int>& axes);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_PARAMETER_SHARE_H_
