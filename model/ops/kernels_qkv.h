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

// The memory of an emulated launch on `positions` positions; `scratch_floats` for weight gradients.
class QkvLaunchMemory {
 public:
  QkvLaunchMemory(const OpContext& ctx, const QkvPreparation& op, std::size_t positions,
                  std::int64_t scratch_floats)
      : positions_(positions) {
    launch_.positions = positions_.data();
    if (scratch_floats > 0) {
      scratch_ = Scratch(ctx, scratch_floats);
      launch_.weight_gradient_scratch = scratch_.data<float>();
    }
    if (op.rotary != nullptr && op.rotary->length() > 0) {
      launch_.cos = op.rotary->Cos(0);
      launch_.sin = op.rotary->Sin(0);
    }
  }
  const QkvLaunch& launch() const { return launch_; }

 private:
  std::vector<std::int64_t> positions_;
  Tensor scratch_;
  QkvLaunch launch_;
};

template <typename T>
void PrepareQkv(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                const QkvOutputs<T>& out) {
  Choose<T>(
      ctx,
      [&]<typename U>(StorageType<U>) {
        const QkvLaunchMemory memory(ctx, op, in.positions.size(), 0);
        return cuda_emulated::PrepareQkv<U>(op, in, out, memory.launch());
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
      [&]<typename U>(StorageType<U>) {
        const QkvLaunchMemory memory(ctx, op, in.positions.size(),
                                     WeightGradientScratch(op, in.packed.rows));
        return cuda_emulated::PrepareQkvBackward<U>(op, in, d, out, memory.launch());
      },
      [&] {
        const absl::Status status = headwise::PrepareQkvBackward<T>(op, in, d, out, *ctx.pool);
        HW_CHECK(status.ok()) << status;
      });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_QKV_H_
