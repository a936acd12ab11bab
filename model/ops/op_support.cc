#include "model/ops/op_support.h"

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/relaxed.h"
#include "core/parallel/tensor_layout.h"

namespace headwise {

Tensor OpContext::Empty(Shape shape, DType dtype) const {
  if (storage != nullptr) return storage->Empty(std::move(shape), dtype, device);
  return Tensor::Empty(std::move(shape), dtype, device);
}

namespace ops {
namespace {

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream s;
  s << tensor.dtype() << " " << ToString(tensor.shape()) << " on " << tensor.device();
  return s.str();
}

bool Ragged(const LayoutType& layout) {
  for (const ShardedDim& dim : layout.dims()) {
    for (const ShardedFactor& f : dim) {
      if (f.factor.kind == FactorKind::kRagged) return true;
    }
  }
  return false;
}

void CheckShare(const OpContext& ctx, const Tensor& tensor, const LayoutType& layout) {
  HW_CHECK_EQ(tensor.dtype(), layout.dtype()) << "a tensor with the layout " << layout.ToString();
  if (Ragged(layout)) return;
  HW_CHECK(tensor.shape() == layout.LocalShape(ctx.sharding->rank()))
      << "rank " << ctx.sharding->rank() << " has " << ToString(tensor.shape()) << " of "
      << layout.ToString();
}

}  // namespace

bool OfBatch(const OpContext& ctx, const char* op, const char* argument, std::int64_t rows_of_batch,
             std::int64_t rows) {
  if (ctx.sharding == nullptr) CheckLength(op, argument, rows_of_batch, rows);
  if (rows_of_batch == rows) return true;
  ctx.sharding->checker().Note(LayoutError(
      op, "", {},
      absl::StrCat(argument, " are of ", rows_of_batch, " tokens on this rank, and meet ", rows,
                   ": what a pass is fed with must be laid out as the activations are")));
  return false;
}

bool OfShare(const OpContext& ctx, const char* op, const Tensor& gradient,
             const LayoutType& derived) {
  if (ctx.sharding == nullptr || !derived.defined()) return true;
  const Shape share = derived.LocalShape(ctx.sharding->rank());
  if (gradient.shape() == share) return true;
  ctx.sharding->checker().Note(LayoutError(
      op, "", {{"gradient", derived}},
      absl::StrCat("rank ", ctx.sharding->rank(), " has ", ToString(share),
                   " of the gradient, and ", ToString(gradient.shape()), " of its parameter")));
  return false;
}

LayoutArgument ArgumentOf(const Tensor& tensor) {
  return {.present = tensor.defined(), .layout = LayoutOf(tensor)};
}

bool OperandsKnown(const OpContext& ctx, absl::Span<const LayoutArgument> arguments) {
  if (!ctx.sharding->status().ok()) return false;
  for (const LayoutArgument& argument : arguments) {
    if (!argument.present || argument.layout.defined()) continue;
    LayoutChecker& checker = ctx.sharding->checker();
    if (checker.mistakes().empty()) {
      checker.Note(absl::InternalError(
          "an operand has no layout although nothing is wrong: what made it derives none"));
    }
    return false;
  }
  return true;
}

bool NoteRefusal(const OpContext& ctx, const absl::Status& refusal, absl::Span<LayoutType> operands,
                 bool first) {
  LayoutChecker& checker = ctx.sharding->checker();
  if (first) checker.Note(refusal);
  return checker.relaxed() && RelaxTypes(refusal, operands);
}

Tensor Result(const OpContext& ctx, Shape shape, DType dtype, const LayoutType& layout) {
  return Overwritten(ctx, ctx.Empty(std::move(shape), dtype), layout);
}

Tensor Overwritten(const OpContext& ctx, const Tensor& tensor, const LayoutType& layout) {
  if (ctx.sharding == nullptr) return tensor;
  CheckShare(ctx, tensor, layout);
  return TensorLayout::Attach(tensor, layout);
}

void Forget(const OpContext& ctx, Tensor& tensor) {
  if (ctx.sharding != nullptr) tensor = TensorLayout::Attach(tensor, LayoutType());
}

void CheckTensor(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 const Shape& shape, DType dtype) {
  HW_CHECK(tensor.defined() && tensor.shape() == shape && tensor.dtype() == dtype &&
           tensor.device() == ctx.device)
      << op << ": " << argument << " is " << Describe(tensor) << ", must be " << dtype << " "
      << ToString(shape) << " on " << ctx.device;
}

void CheckMatrix(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 DType dtype) {
  HW_CHECK(tensor.defined() && tensor.rank() == 2 && tensor.dtype() == dtype &&
           tensor.device() == ctx.device)
      << op << ": " << argument << " is " << Describe(tensor) << ", must be a " << dtype
      << " matrix on " << ctx.device;
}

void CheckUndefined(const char* op, const char* argument, const Tensor& tensor) {
  HW_CHECK(!tensor.defined()) << op << ": " << argument << " is " << Describe(tensor)
                              << ", must be undefined";
}

void CheckLength(const char* op, const char* argument, std::int64_t actual, std::int64_t expected) {
  HW_CHECK(actual == expected) << op << ": " << argument << " has " << actual
                               << " elements, must have " << expected;
}

}  // namespace ops
}  // namespace headwise
