// What every op is written with: the derivation of layouts, argument checks and the dispatch on
// device and dtype. Internal to model/ops.
//
//   const auto y_layout = Derive(ctx, [](const LayoutType& x, const LayoutType& w) {
//     return rules::Linear(x, w, nullptr);
//   }, x, weight);
//   if (!y_layout.known) return Unknown(ctx);
//   CheckMatrix(ctx, "Linear", "x", x, ctx.compute);
//   const Tensor y = Result(ctx, {x.dim(0), weight.dim(0)}, ctx.compute, y_layout.value);
//   Dispatch(ctx, ...);
//
// Result() is how a result comes into being: it takes the layout, so that an op without a rule has
// none to give. What is made without one is refused by the next op (Derive).
#ifndef HEADWISE_MODEL_OPS_OP_SUPPORT_H_
#define HEADWISE_MODEL_OPS_OP_SUPPORT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_type.h"
#include "core/tensor/tensor.h"
#include "model/ops.h"

namespace headwise::ops {

// Fails, naming op and argument, unless the tensor is defined with this shape and dtype on the
// context's device.
void CheckTensor(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 const Shape& shape, DType dtype);
// Likewise for a rank-2 tensor of any shape, before its dimensions are used.
void CheckMatrix(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 DType dtype);
// Fails unless the tensor is undefined: an argument that this mode of the op does not take.
void CheckUndefined(const char* op, const char* argument, const Tensor& tensor);
// Fails unless `actual` is `expected`: the length of a span.
void CheckLength(const char* op, const char* argument, std::int64_t actual, std::int64_t expected);

// --- layouts ---

// Whether what a batch brings (positions, targets, segments) is of as many rows as the tensor that
// it meets. Where a plan lays the two out differently that is a mistake, noted, and the op's result
// unknown; without layouts it is the caller's (a failed HW_CHECK).
bool OfBatch(const OpContext& ctx, const char* op, const char* argument, std::int64_t rows_of_batch,
             std::int64_t rows);

// Whether a parameter's gradient is of the rank's share of the parameter, as its buffer is. If a plan
// makes it another, that is a mistake, noted.
bool OfShare(const OpContext& ctx, const char* op, const Tensor& gradient,
             const LayoutType& derived);

// An argument as rules see it.
struct LayoutArgument {
  bool present = true;  // false: the op goes without it
  LayoutType layout = {};
};
LayoutArgument ArgumentOf(const Tensor& tensor);
inline LayoutArgument ArgumentOf(const LayoutType& layout) { return {.layout = layout}; }
inline LayoutArgument ArgumentOf(const LayoutArgument& argument) { return argument; }

// An optional operand for rules that take a pointer.
inline const LayoutType* OrNull(const LayoutType& layout) {
  return layout.defined() ? &layout : nullptr;
}

// What a rule gives.
template <typename R>
struct Derived {
  bool known = true;  // false: the result is unknown
  R value = R();      // nothing without layouts
};

// Whether the operands have the layouts that a rule needs. False if one is unknown; if no mistake
// explains it, that is noted as one: what made it has no rule.
bool OperandsKnown(const OpContext& ctx, absl::Span<const LayoutArgument> arguments);
// Notes a refusal.
void NoteRefusal(const OpContext& ctx, const absl::Status& refusal);
// For tests that run what is refused (LayoutChecker::set_relaxed): the operands as they might go
// together; nothing where there is no such way left.
std::optional<std::vector<LayoutType>> OtherOperands(const OpContext& ctx,
                                                     const absl::Status& refusal,
                                                     absl::Span<const LayoutType> operands,
                                                     int attempt);

// rule(layout of each operand), an undefined one for operands that the op goes without. Operands
// are tensors, layouts, or LayoutArguments.
template <typename Rule, typename... Operands>
auto Derive(const OpContext& ctx, const Rule& rule, const Operands&... operands) {
  constexpr std::size_t kCount = sizeof...(Operands);
  const auto ask = [&]<std::size_t... I>(const std::array<LayoutType, kCount>& types,
                                         std::index_sequence<I...>) {
    return rule(types[I]...);
  };
  using StatusOr = decltype(ask({}, std::make_index_sequence<kCount>()));
  Derived<typename StatusOr::value_type> derived;
  if (ctx.sharding == nullptr) return derived;
  const std::array<LayoutArgument, kCount> arguments = {ArgumentOf(operands)...};
  derived.known = OperandsKnown(ctx, arguments);
  if (!derived.known) return derived;
  std::array<LayoutType, kCount> types;
  for (std::size_t i = 0; i < kCount; ++i) types[i] = arguments[i].layout;
  StatusOr result = ask(types, std::make_index_sequence<kCount>());
  if (!result.ok()) NoteRefusal(ctx, result.status());
  const absl::Status refusal = result.status();
  for (int attempt = 0; !result.ok(); ++attempt) {
    const auto other = OtherOperands(ctx, refusal, types, attempt);
    if (!other.has_value()) {
      derived.known = false;
      return derived;
    }
    std::array<LayoutType, kCount> relaxed;
    std::copy(other->begin(), other->end(), relaxed.begin());
    result = ask(relaxed, std::make_index_sequence<kCount>());
  }
  derived.value = *std::move(result);
  return derived;
}

// An uninitialised result of this rank's shape, with its layout, of which the shape must be the
// share (a failed HW_CHECK; rows of experts have no fixed share).
Tensor Result(const OpContext& ctx, Shape shape, DType dtype, const LayoutType& layout);
// `tensor`, which the op has overwritten, with its new layout.
Tensor Overwritten(const OpContext& ctx, const Tensor& tensor, const LayoutType& layout);
// Leaves a tensor that should have been overwritten without a layout.
void Forget(const OpContext& ctx, Tensor& tensor);
inline Tensor Unknown(const OpContext& ctx) { return UnknownTensor(ctx.device); }

template <typename T>
struct StorageType {
  using type = T;
};

// f(StorageType<T>()) with the C++ type of the compute dtype; nothing on kMeta.
template <typename F>
void Dispatch(const OpContext& ctx, F f) {
  if (ctx.device == Device::kMeta) return;
  if (ctx.device == Device::kCuda) {
    HW_CHECK(ctx.gpu != nullptr && ctx.launchers != nullptr)
        << "an OpContext on a GPU needs it, and launchers";
    HW_CHECK(ctx.compute != DType::kF64) << "there are no CUDA kernels of double";
  } else {
    HW_CHECK(ctx.pool != nullptr) << "an OpContext on the CPU needs a thread pool";
  }
  switch (ctx.compute) {
    case DType::kF32:
      return f(StorageType<float>());
    case DType::kBF16:
      return f(StorageType<BFloat16>());
    case DType::kF64:
      return f(StorageType<double>());
    default:
      HW_CHECK(false) << "activations cannot be " << ctx.compute;
  }
}

// The elements of a vector; empty for an undefined tensor.
template <typename T>
absl::Span<T> Elements(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return absl::Span<T>(tensor.data<std::remove_const_t<T>>(),
                       static_cast<std::size_t>(tensor.size()));
}

// The rows of a matrix; no data for an undefined tensor.
template <typename T>
RowSpan<T> RowsOrNone(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return tensor.Rows<std::remove_const_t<T>>();
}

}  // namespace headwise::ops

#endif  // HEADWISE_MODEL_OPS_OP_SUPPORT_H_
