// LayoutType: what a tensor is on a mesh: its global, factored shape, its dtype, and for each mesh
// axis one of five local types.
//
//   type         on the ranks of the axis                                    its gradient
//   R replicate  the same data, used N times independently                   P
//   I invariant  the same data, one computation that happens to run N times  I
//   V varying    different data, no stated way to reassemble                 V
//   P partial    the sum over the ranks is the value                         R
//   S sharded    the concatenation along one dimension is the value          S
//
// A type cannot be written down, only obtained: by declaring a leaf (Declare: a parameter or an
// input), from a rule (core/parallel/op_rules.h), or from a collective or conversion
// (core/parallel/step.h). There is no setter and no public constructor with contents, so a
// gradient's type is always derived.
//
//   const LayoutSpec spec = *LayoutSpec::Parse("S(0)@dp, S(0)@tp");
//   const LayoutType x = *LayoutType::Declare(
//       mesh, {{Factor::Batch("B", 2), {"L", 4096}}, {{"N", 512}}}, DType::kBF16, spec);
//   x.ToString();       // "BF16[B=2 L=4096, N=512] dp:S(B) tp:S(L)"
//   x.LocalShape(0);    // {1 * 1024, 512} for dp=2, tp=4
//
// Several axes may shard one dimension, in order: the first named cuts coarsest. S over (dp, tp) is
// not S over (tp, dp).
//
// Immutable value; safe to share between threads. Nearest public work: JAX's sharding-in-types,
// whose "replicated" is I here, "reduced" R, and "unreduced" P; and meta-pytorch/spmd_types.
#ifndef HEADWISE_CORE_PARALLEL_LAYOUT_TYPE_H_
#define HEADWISE_CORE_PARALLEL_LAYOUT_TYPE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/parallel/factored_dim.h"
#include "core/parallel/mesh.h"

namespace headwise {

enum class AxisType { kReplicate, kInvariant, kVarying, kPartial, kShard };

// "R", "I", "V", "P", "S".
const char* Name(AxisType type);
// The type of the gradient of a value of this type: the last column of the table above.
AxisType DualOf(AxisType type);

// What a plan says of a leaf on one axis.
struct AxisSpec {
  std::string axis;  // an axis with sub-axes stands for all of them, in order
  AxisType type = AxisType::kReplicate;
  int dim = 0;  // of kShard
  // Of kShard: the sizes of the ranks' shares of the factor, where they are not equal; they add up
  // to the factor's size. Empty: equal shares.
  std::vector<std::int64_t> sizes = {};
  friend bool operator==(const AxisSpec&, const AxisSpec&) = default;
};

// What a plan says of a leaf: axes that are not mentioned are R. Entries that shard the same
// dimension do it in the order in which they stand.
struct LayoutSpec {
  std::vector<AxisSpec> axes = {};
  MeshView view = MeshView::kDense;

  // "S(0)@dp, I@tp", "S(0: 3 2)@dp" with sizes, "expert: S(0)@ep" for the expert view; "" for R
  // everywhere. kInvalidArgument names the part that does not read.
  static absl::StatusOr<LayoutSpec> Parse(absl::string_view text);
  std::string ToString() const;
  friend bool operator==(const LayoutSpec&, const LayoutSpec&) = default;
};

// A factor and the axes that shard it, coarsest first.
struct ShardedFactor {
  Factor factor;
  std::vector<int> axes = {};
  std::vector<std::int64_t> sizes = {};  // of axes[0], where they are not equal

  // What is left of the factor on a rank, before a size table.
  std::int64_t Share(const Mesh& mesh, MeshView view) const;
  friend bool operator==(const ShardedFactor&, const ShardedFactor&) = default;
};
using ShardedDim = std::vector<ShardedFactor>;

class LayoutType {
 public:
  // Nothing is known; defined() is false. Rules answer an undefined operand with an undefined
  // result, so that one mistake is reported once.
  LayoutType() = default;

  // The type of a leaf. kInvalidArgument, naming the axis and the factor: an unknown axis or one
  // mentioned twice, a dimension that does not exist, a factor that the axis does not divide, a
  // factor that must stay whole, a size table of the wrong length or sum.
  static absl::StatusOr<LayoutType> Declare(const Mesh& mesh, const std::vector<Dim>& shape,
                                            DType dtype, const LayoutSpec& spec);

  bool defined() const { return data_ != nullptr; }

  // The rest needs defined().
  const Mesh& mesh() const;
  MeshView view() const;
  DType dtype() const;
  int rank() const;
  const std::vector<ShardedDim>& dims() const;
  // One per axis of the view.
  absl::Span<const AxisType> axis_types() const;
  AxisType axis_type(int axis) const { return axis_types()[axis]; }
  // The dimension that an axis shards; -1 unless axis_type is kShard.
  int ShardedBy(int axis) const;
  // Axes that shard a dimension, outermost first. Only the last may be gathered, scattered, sliced
  // or exchanged.
  std::vector<int> AxesOf(int dim) const;

  // Sizes of all ranks together, and of one of them.
  std::vector<std::int64_t> GlobalShape() const;
  std::vector<std::int64_t> LocalShape(std::int64_t rank) const;
  std::int64_t LocalBytes(std::int64_t rank) const;
  // Whether every rank has the same local shape: no size tables.
  bool uniform() const;

  // "BF16[B=2 L=4096, N=512] dp:S(B) tp:S(L)"; axes that are R are left out when `brief`.
  std::string ToString(bool brief = true) const;
  // What one axis says of it: "S(G)", "R".
  std::string AxisToString(int axis) const;

  friend bool operator==(const LayoutType& a, const LayoutType& b);

 private:
  friend class LayoutMaker;  // core/parallel/layout_maker.h, for rules and conversions only
  struct Data;
  explicit LayoutType(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

// The first element along `dim` of the rank's share, which must be one range of them (checked): of
// the factors before one that is sharded a rank has one element.
std::int64_t ShareBegin(const LayoutType& type, int dim, std::int64_t rank);

// OK if `gradient` may be the gradient of `value`: the same global shape and order of tokens, and
// on every axis the dual type, sharded alike. Otherwise kFailedPrecondition names the first axis
// where they differ. dtypes may differ.
absl::Status CheckDual(const LayoutType& gradient, const LayoutType& value);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_LAYOUT_TYPE_H_
