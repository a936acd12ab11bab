#include "core/base/check.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/swiglu/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// What both directions compute from an element; alpha and limit are rounded once.
template <bool kClamped>
struct Steps {
  float alpha, limit;

  // NaN stays.
  __device__ __forceinline__ Fp32 Gate(Fp32 gate) const {
    return kClamped ? Min(limit, gate) : gate;
  }
  __device__ __forceinline__ Fp32 Scaled(Fp32 g) const { return kClamped ? g * alpha : g; }
  // What silu(gate) is multiplied by.
  __device__ __forceinline__ Fp32 Factor(Fp32 up) const {
    if (!kClamped) return up;
    return Max(-limit, Min(limit, up)) + 1.0f;
  }
};

template <typename T, bool kClamped>
struct ForwardBody {
  static constexpr bool kFlattens = true;
  Steps<kClamped> steps;
  Rows<const T> gate, up;
  Rows<T> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 g[N], u[N];
    LoadElements(gate.row(row) + column, g);
    LoadElements(up.row(row) + column, u);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Fp32 x = steps.Gate(g[i]);
      g[i] = (x * Sigmoid(steps.Scaled(x))) * steps.Factor(u[i]);
    }
    StoreElements(out.row(row) + column, g);
  }
};

template <typename T, bool kClamped>
struct BackwardBody {
  static constexpr bool kFlattens = true;
  Steps<kClamped> steps;
  Rows<const T> gate, up, dout;
  Rows<T> dgate, dup;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 g[N], u[N], d[N];
    LoadElements(gate.row(row) + column, g);
    LoadElements(up.row(row) + column, u);
    LoadElements(dout.row(row) + column, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Fp32 x = steps.Gate(g[i]);
      const Sigmoids sigmoid(steps.Scaled(x));
      const Fp32 a = x * sigmoid.value;
      const Fp32 slope = Fma(steps.Scaled(a), sigmoid.complement, sigmoid.value);
      const Fp32 to_gate = (d[i] * steps.Factor(u[i])) * slope, to_up = d[i] * a;
      if constexpr (kClamped) {
        g[i] = Select(g[i] <= steps.limit, to_gate, 0.0f);
        u[i] = Select(Abs(u[i]) <= steps.limit, to_up, 0.0f);
      } else {
        g[i] = to_gate;
        u[i] = to_up;
      }
    }
    StoreElements(dgate.row(row) + column, g);
    StoreElements(dup.row(row) + column, u);
  }
};

template <bool kClamped>
Steps<kClamped> MakeSteps(const Swiglu& op) {
  if (kClamped) HW_CHECK(op.limit > 0) << "limit " << op.limit;
  return {static_cast<float>(op.alpha), static_cast<float>(op.limit)};
}

template <typename T, bool kClamped>
absl::Status Forward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out,
                     CUstream_st* stream) {
  const ForwardBody<T, kClamped> body = {MakeSteps<kClamped>(op), MakeRows(gate), MakeRows(up),
                                         MakeRows(out)};
  return MapRows("SwigluForward", body, stream, /*aligned=*/true, gate, up, out);
}

template <typename T, bool kClamped>
absl::Status Backward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,
                      RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup,
                      CUstream_st* stream) {
  const BackwardBody<T, kClamped> body = {MakeSteps<kClamped>(op), MakeRows(gate),  MakeRows(up),
                                          MakeRows(dout),          MakeRows(dgate), MakeRows(dup)};
  return MapRows("SwigluBackward", body, stream, /*aligned=*/true, gate, up, dout, dgate, dup);
}

}  // namespace

template <typename T>
absl::Status SwigluForward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,
                           RowSpan<T> out, CUstream_st* stream) {
  return op.clamped ? Forward<T, true>(op, gate, up, out, stream)
                    : Forward<T, false>(op, gate, up, out, stream);
}

template <typename T>
absl::Status SwigluBackward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,
                            RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup,
                            CUstream_st* stream) {
  return op.clamped ? Backward<T, true>(op, gate, up, dout, dgate, dup, stream)
                    : Backward<T, false>(op, gate, up, dout, dgate, dup, stream);
}

#define HEADWISE_INSTANTIATE(T)                                                           \
  template absl::Status SwigluForward(const Swiglu&, RowSpan<const T>, RowSpan<const T>,  \
                                      RowSpan<T>, CUstream_st*);                          \
  template absl::Status SwigluBackward(const Swiglu&, RowSpan<const T>, RowSpan<const T>, \
                                       RowSpan<const T>, RowSpan<T>, RowSpan<T>, CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
