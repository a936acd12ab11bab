// What every op is written with: argument checks and the dispatch on device and dtype. Internal to
// model/ops.
#ifndef HEADWISE_MODEL_OPS_OP_SUPPORT_H_
#define HEADWISE_MODEL_OPS_OP_SUPPORT_H_

#include <type_traits>
#include <utility>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/dtype/dtype.h"
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

template <typename T>
struct StorageType {
  using type = T;
};

// f(StorageType<T>()) with the C++ type of the compute dtype; nothing on kMeta.
template <typename F>
void Dispatch(const OpContext& ctx, F f) {
  if (ctx.device == Device::kMeta) return;
  HW_CHECK(ctx.device == Device::kCpu) << "no kernels for device " << ctx.device;
  HW_CHECK(ctx.pool != nullptr) << "an OpContext on the CPU needs a thread pool";
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
