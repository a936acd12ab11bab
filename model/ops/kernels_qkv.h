// Split, head norm and RoPE by the chosen implementation (model/ops/kernels.h). Arguments and
// formulas: kernels/prepare_qkv/prepare_qkv.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_QKV_H_
#define HEADWISE_MODEL_OPS_KERNELS_QKV_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/tensor.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

// The memory of a launch; `scratch_floats` for weight gradients. On a GPU positions are read where
// they are; the emulation checks them on the host and copies them.
template <typename T>
class QkvLaunchMemory {
 public:
  QkvLaunchMemory(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                  std::int64_t scratch_floats)
      : in_(in), bad_(ctx, Fault::kPosition) {
    launch_.stream = Stream(ctx);
    if (ctx.gpu == nullptr) {
      positions_.resize(in.positions.size());
      launch_.positions = positions_.data();
    } else {
      launch_.positions = const_cast<std::int64_t*>(in.positions.data());  // only read
      launch_.first_bad_token = bad_.get();
      in_.positions = {};
    }
    if (scratch_floats > 0) {
      scratch_ = Scratch(ctx, scratch_floats);
      launch_.weight_gradient_scratch = scratch_.data<float>();
    }
    if (op.rotary != nullptr && ctx.gpu != nullptr) {
      launch_.cos = ctx.rotary.cos;
      launch_.sin = ctx.rotary.sin;
    } else if (op.rotary != nullptr && op.rotary->length() > 0) {
      launch_.cos = op.rotary->Cos(0);
      launch_.sin = op.rotary->Sin(0);
    }
  }
  const QkvInputs<T>& in() const { return in_; }
  const QkvLaunch& launch() const { return launch_; }

 private:
  QkvInputs<T> in_;
  FirstBadIndex bad_;
  std::vector<std::int64_t> positions_;
  Tensor scratch_;
  QkvLaunch launch_;
};

template <typename T>
void PrepareQkv(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                const QkvOutputs<T>& out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const QkvLaunchMemory<U> memory(ctx, op, in, 0);
        return of.PrepareQkv(op, memory.in(), out, memory.launch());
      },
      [&] {
        const absl::Status status = headwise::PrepareQkv<T>(op, in, out, *ctx.pool);
        HW_CHECK(status.ok()) << status;
      });
}

template <typename T>
void PrepareQkvBackward(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                        const QkvGradients<T>& d, const PackedGradients<T>& out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const QkvLaunchMemory<U> memory(ctx, op, in, WeightGradientScratch(op, in.packed.rows));
        return of.PrepareQkvBackward(op, memory.in(), d, out, memory.launch());
      },
      [&] {
        const absl::Status status = headwise::PrepareQkvBackward<T>(op, in, d, out, *ctx.pool);
        HW_CHECK(status.ok()) << status;
      });
}

template <typename C>
void ReduceHeadNormGradient(const OpContext& ctx, RowSpan<const C> per_group, absl::Span<C> out) {
  Choose<C>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return ctx.launchers->ReduceHeadNormGradient(per_group, out, Stream(ctx));
      },
      [&] { headwise::ReduceHeadNormGradient<C>(per_group, out); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_QKV_H_
