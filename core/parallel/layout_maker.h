// LayoutMaker: makes and takes apart types. The only way to a LayoutType apart from declaring a
// leaf, and visible to the rules and conversions of this package alone: whoever could call it
// elsewhere could stamp a type on a tensor that does not have it.
#ifndef HEADWISE_CORE_PARALLEL_LAYOUT_MAKER_H_
#define HEADWISE_CORE_PARALLEL_LAYOUT_MAKER_H_

#include <vector>

#include "absl/status/status.h"
#include "core/parallel/layout_type.h"

namespace headwise {

class LayoutMaker {
 public:
  // A copy of `from`'s contents to change.
  explicit LayoutMaker(const LayoutType& from);
  LayoutMaker(const Mesh& mesh, MeshView view, DType dtype);

  Mesh mesh;
  MeshView view;
  DType dtype;
  std::vector<ShardedDim> dims;
  std::vector<AxisType> types;  // one per axis of the view

  // Shards `dim` by `axis` as its innermost axis. kInvalidArgument says which factor is in the way
  // and what would divide it. Does not look at types[axis].
  absl::Status Shard(int dim, int axis, std::vector<std::int64_t> sizes = {});
  // Takes `axis` off whatever dimension it shards.
  void Unshard(int axis);

  // Checks that every sharded axis occurs in exactly one factor (a programmer's error otherwise)
  // and drops factors of size 1.
  LayoutType Make() &&;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_LAYOUT_MAKER_H_
