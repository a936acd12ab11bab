// The choice between the implementations of a kernel: on the CPU, or the CUDA kernel, emulated.
// Internal to model/ops; kernels_*.h apply it to one family each, and ops call those.
//
//   template <typename T>
//   void Add(const OpContext& ctx, RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out) {
//     Choose<T>(
//         ctx,
//         [&]<typename U>(StorageType<U>) { return cuda_emulated::Add<U>(a, b, out, nullptr); },
//         [&] { headwise::Add<T>(a, b, out, *ctx.pool); });
//   }
//
// The bits are the same. There are no CUDA kernels of double: those always run on the CPU, and so
// do families without a kernels_*.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_H_
#define HEADWISE_MODEL_OPS_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/tensor/tensor.h"
#include "kernels/emulation/emulation.h"
#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops::kernels {

// Calls emulated(StorageType<T>()), which returns the launcher's status, where the context asks for
// CUDA kernels, else cpu(). A launch that fails, or a finding of the emulation, fails an HW_CHECK.
template <typename T, typename Emulated, typename Cpu>
void Choose(const OpContext& ctx, Emulated emulated, Cpu cpu) {
  if constexpr (!std::is_same_v<T, double>) {
    if (ctx.kernels == Kernels::kCudaEmulated) {
      const emulation::Session session({.os_threads = ctx.pool->num_threads()});
      const absl::Status launched = emulated(StorageType<T>());
      HW_CHECK(launched.ok()) << launched;
      HW_CHECK(session.status().ok()) << session.status();
      return;
    }
  }
  cpu();
}

// Scratch of a launch, `count` elements.
inline Tensor Scratch(const OpContext& ctx, std::int64_t count, DType dtype = DType::kF32) {
  return ctx.Empty({count}, dtype);
}

// A counter that kernels set to the index of the first argument in device memory that is out of
// range: a token, a target, a segment.
class FirstBadIndex {
 public:
  std::uint64_t* get() { return &index_; }
  // Fails, naming it, if there was one: "Embedding: token 7 is out of range".
  void Check(const char* what) const {
    HW_CHECK(index_ == kNone) << what << " " << index_ << " is out of range";
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t index_ = kNone;
};

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_H_
