// Split, head norm and RoPE by the chosen implementation (model/ops/kernels.h), in one kernel or one
// after the other. Arguments and formulas: kernels/prepare_qkv/prepare_qkv.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_QKV_H_
#define HEADWISE_MODEL_OPS_KERNELS_QKV_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/unfused.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

// Who looks at positions: the kernels, where they are; or the launcher, which copies them.
enum class PositionsBy { kKernels, kLauncher };

// On a GPU nobody else can; the fused kernels' emulation has them in host memory.
inline PositionsBy PositionsOfFused(const OpContext& ctx) {
  return ctx.gpu == nullptr ? PositionsBy::kLauncher : PositionsBy::kKernels;
}

// The memory of a launch; `scratch_floats` for weight gradients.
template <typename T>
class QkvLaunchMemory {
 public:
  QkvLaunchMemory(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                  PositionsBy positions_by, std::int64_t scratch_floats)
      : in_(in), bad_(ctx, Fault::kPosition) {
    launch_.stream = Stream(ctx);
    if (positions_by == PositionsBy::kLauncher) {
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
  // After the launch: where the memory is the host's, fails if a position has no row in the table.
  void CheckPositions() const { bad_.Check(); }

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
        const QkvLaunchMemory<U> memory(ctx, op, in, PositionsOfFused(ctx), 0);
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
        const QkvLaunchMemory<U> memory(ctx, op, in, PositionsOfFused(ctx),
                                        WeightGradientScratch(op, in.packed.rows));
        return of.PrepareQkvBackward(op, memory.in(), d, out, memory.launch());
      },
      [&] {
        const absl::Status status = headwise::PrepareQkvBackward<T>(op, in, d, out, *ctx.pool);
        HW_CHECK(status.ok()) << status;
      });
}

// Elements where the separate kernels take them, at multiples of 16 bytes: themselves, or a copy. The
// elements are one behind the other, as a tensor's are.
class AlignedElements {
 public:
  explicit AlignedElements(const OpContext& ctx) : ctx_(ctx) {}

  template <typename T>
  const T* Of(const T* data, std::int64_t count) {
    if (reinterpret_cast<std::uintptr_t>(data) % 16 == 0) return data;
    const Tensor copy = Scratch(ctx_, count, kDType<T>);
    CopyBytes(ctx_, copy.raw_data(), data, copy.bytes());
    copies_.push_back(copy);
    return copy.data<T>();
  }
  template <typename T>
  RowSpan<const T> Of(RowSpan<const T> m) {
    return {Of(m.data, m.rows * m.width), m.rows, m.width};
  }
  absl::Span<const float> Of(absl::Span<const float> v) {
    return {Of(v.data(), static_cast<std::int64_t>(v.size())), v.size()};
  }

 private:
  const OpContext& ctx_;
  std::vector<Tensor> copies_;
};

// The same of the separate kernels: operands that they take, and what stands between them.
template <typename T>
class UnfusedLaunchMemory {
 public:
  UnfusedLaunchMemory(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                      std::int64_t partials)
      : aligned_(ctx),
        memory_(ctx, op,
                {.packed = aligned_.Of(in.packed),
                 .q_weight = aligned_.Of(in.q_weight),
                 .k_weight = aligned_.Of(in.k_weight),
                 .positions = in.positions},
                PositionsBy::kKernels, 0),
        elements_(Scratch(ctx, UnfusedElements(op, in.packed.rows), kDType<T>)),
        partials_(Scratch(ctx, partials)),
        workspace_(MakeUnfusedWorkspace(op, in.packed.rows, elements_.template data<T>(),
                                        partials_.template data<float>())) {}

  const QkvInputs<T>& in() const { return memory_.in(); }
  const QkvLaunch& launch() const { return memory_.launch(); }
  const UnfusedWorkspace<T>& workspace() const { return workspace_; }
  void CheckPositions() const { memory_.CheckPositions(); }

 private:
  AlignedElements aligned_;
  QkvLaunchMemory<T> memory_;
  Tensor elements_, partials_;
  UnfusedWorkspace<T> workspace_;
};

template <typename T>
void PrepareQkvUnfused(const OpContext& ctx, const QkvPreparation& op, const QkvInputs<T>& in,
                       const QkvOutputs<T>& out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) -> absl::Status {
        const UnfusedLaunchMemory<U> memory(ctx, op, in, 0);
        HW_RETURN_IF_ERROR(
            of.PrepareQkvUnfused(op, memory.in(), out, memory.workspace(), memory.launch()));
        memory.CheckPositions();
        return absl::OkStatus();
      },
      [&] { headwise::PrepareQkvUnfused<T>(op, in, out, *ctx.pool); });
}

// q and k are split from `packed` again.
template <typename T>
void PrepareQkvBackwardUnfused(const OpContext& ctx, const QkvPreparation& op,
                               const QkvInputs<T>& in, const QkvGradients<T>& d,
                               const PackedGradients<T>& out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) -> absl::Status {
        const UnfusedLaunchMemory<U> memory(ctx, op, in, UnfusedPartials(op, in.packed.rows));
        AlignedElements aligned(ctx);
        const QkvGradients<U> gradients = {aligned.Of(d.dq), aligned.Of(d.dk), aligned.Of(d.dv)};
        HW_RETURN_IF_ERROR(
            of.SplitQkvUnfused(op, memory.in(), memory.workspace(), memory.launch()));
        HW_RETURN_IF_ERROR(of.PrepareQkvBackwardUnfused(op, memory.in(), gradients, out,
                                                        memory.workspace(), memory.launch()));
        memory.CheckPositions();
        return absl::OkStatus();
      },
      [&] { headwise::PrepareQkvBackwardUnfused<T>(op, in, d, out, *ctx.pool); });
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
