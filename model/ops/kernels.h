// The choice between the implementations of a kernel: on the CPU, or a CUDA kernel, on a GPU or
// emulated. Internal to model/ops; kernels_*.h apply it to one family each, and ops call those.
//
//   template <typename T>
//   void Add(const OpContext& ctx, RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out) {
//     Choose<T>(
//         ctx,
//         [&]<typename U>(const StorageLaunchers<U>& of) { return of.Add(a, b, out, Stream(ctx)); },
//         [&] { headwise::Add<T>(a, b, out, *ctx.pool); });
//   }
//
// The bits are the same. There are no CUDA kernels of double: those always run on the CPU, and so
// do families without a kernels_*.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_H_
#define HEADWISE_MODEL_OPS_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/tensor/tensor.h"
#include "kernels/launchers/launchers.h"
#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops::kernels {

// Calls launch(); where the context has no GPU, under the emulation. A launch that fails, or a
// finding of the emulation, fails an HW_CHECK.
void Launch(const OpContext& ctx, absl::FunctionRef<absl::Status()> launch);

// What launches run on: null for the emulation.
inline CUstream_st* Stream(const OpContext& ctx) {
  return ctx.gpu == nullptr ? nullptr : ctx.gpu->stream();
}

// Calls launch(launchers of T), which returns a launcher's status, where the context has launchers,
// else cpu().
template <typename T, typename LaunchOf, typename Cpu>
void Choose(const OpContext& ctx, LaunchOf launch, Cpu cpu) {
  if constexpr (!std::is_same_v<T, double>) {
    if (ctx.launchers != nullptr) {
      return Launch(ctx, [&] { return launch(ctx.launchers->Of<T>()); });
    }
  }
  cpu();
}

// Scratch of a launch, `count` elements.
inline Tensor Scratch(const OpContext& ctx, std::int64_t count, DType dtype = DType::kF32) {
  return ctx.Empty({count}, dtype);
}

// A word that kernels set to the index of the first argument in device memory that is out of range.
// On a GPU it is the context's, which whoever waits for the GPU looks at.
class FirstBadIndex {
 public:
  FirstBadIndex(const OpContext& ctx, Fault fault)
      : fault_(fault), word_(ctx.gpu == nullptr ? &index_ : ctx.faults + static_cast<int>(fault)) {}
  FirstBadIndex(const FirstBadIndex&) = delete;
  FirstBadIndex& operator=(const FirstBadIndex&) = delete;

  std::uint64_t* get() { return word_; }
  // Fails, naming it, if there was one on the CPU: "Embedding: token 7 is out of range".
  void Check() const {
    HW_CHECK(index_ == kNoFault) << Name(fault_) << " " << index_ << " is out of range";
  }

 private:
  Fault fault_;
  std::uint64_t index_ = kNoFault;
  std::uint64_t* word_;
};

// Tensors' bytes, on any device but kMeta.
void CopyBytes(const OpContext& ctx, void* to, const void* from, std::int64_t bytes);
void ClearBytes(const OpContext& ctx, void* to, std::int64_t bytes);

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_H_
