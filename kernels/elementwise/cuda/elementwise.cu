// Launchers of what elementwise.h has.
#include <cstdint>

#include "core/base/check.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/elementwise/cuda.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

template <typename T>
struct AddBody {
  static constexpr bool kFlattens = true;
  Rows<const T> a, b;
  Rows<T> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 x[N], y[N];
    LoadElements(a.row(row) + column, x);
    LoadElements(b.row(row) + column, y);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = x[i] + y[i];
    StoreElements(out.row(row) + column, x);
  }
};

template <typename T>
struct AddBiasBody {
  static constexpr bool kFlattens = false;
  Rows<const T> y;
  const float* bias;
  Rows<T> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 x[N], b[N];
    LoadElements(y.row(row) + column, x);
    LoadCachedFloats(bias + column, b);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = x[i] + b[i];
    StoreElements(out.row(row) + column, x);
  }
};

template <typename T>
struct SigmoidGateBody {
  static constexpr bool kFlattens = true;
  Rows<const T> x, gate;
  Rows<T> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 v[N], g[N];
    LoadElements(x.row(row) + column, v);
    LoadElements(gate.row(row) + column, g);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = v[i] * Sigmoid(g[i]);
    StoreElements(out.row(row) + column, v);
  }
};

template <typename T>
struct SigmoidGateBackwardBody {
  static constexpr bool kFlattens = true;
  Rows<const T> x, gate, dout;
  Rows<T> dx, dgate;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 v[N], g[N], d[N];
    LoadElements(x.row(row) + column, v);
    LoadElements(gate.row(row) + column, g);
    LoadElements(dout.row(row) + column, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sigmoids sigmoid(g[i]);
      g[i] = ((d[i] * v[i]) * sigmoid.value) * sigmoid.complement;
      d[i] = d[i] * sigmoid.value;
    }
    StoreElements(dx.row(row) + column, d);
    StoreElements(dgate.row(row) + column, g);
  }
};

template <typename From, typename To>
struct ConvertBody {
  static constexpr bool kFlattens = true;
  Rows<const From> in;
  Rows<To> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 x[N];
    LoadElements(in.row(row) + column, x);
    StoreElements(out.row(row) + column, x);
  }
};

// Words of 2, 4, 8 or 16 bytes.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<2> {
  using type = unsigned short;  // NOLINT(google-runtime-int): what LoadGlobal takes
};
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};

template <typename T>
struct ScatterRowsBody {
  static constexpr bool kFlattens = false;
  Rows<const T> in;
  const std::int64_t* destinations;
  Rows<T> out;
  std::int64_t out_rows;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    using Word = typename WordOf<N* static_cast<int>(sizeof(T))>::type;
    const std::int64_t to = LoadCached(destinations + row);
    if (to < 0 || to >= out_rows) return;
    StoreGlobal(reinterpret_cast<Word*>(out.row(to) + column),
                LoadGlobal(reinterpret_cast<const Word*>(in.row(row) + column)));
  }
};

}  // namespace

template <typename T>
absl::Status Add(RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out, CUstream_st* stream) {
  const AddBody<T> body = {MakeRows(a), MakeRows(b), MakeRows(out)};
  return MapRows("Add", body, stream, /*aligned=*/true, a, b, out);
}

template <typename T>
absl::Status AddBias(RowSpan<const T> y, absl::Span<const float> bias, RowSpan<T> out,
                     CUstream_st* stream) {
  HW_CHECK_EQ(static_cast<std::int64_t>(bias.size()), y.width) << "bias of rows";
  const AddBiasBody<T> body = {MakeRows(y), bias.data(), MakeRows(out)};
  return MapRows("AddBias", body, stream,
                 AlignedTo(16, RowSpan<const float>(bias.data(), 1, y.width)), y, out);
}

template <typename T>
absl::Status SigmoidGateForward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<T> out,
                                CUstream_st* stream) {
  const SigmoidGateBody<T> body = {MakeRows(x), MakeRows(gate), MakeRows(out)};
  return MapRows("SigmoidGateForward", body, stream, /*aligned=*/true, x, gate, out);
}

template <typename T>
absl::Status SigmoidGateBackward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<const T> dout,
                                 RowSpan<T> dx, RowSpan<T> dgate, CUstream_st* stream) {
  const SigmoidGateBackwardBody<T> body = {MakeRows(x), MakeRows(gate), MakeRows(dout),
                                           MakeRows(dx), MakeRows(dgate)};
  return MapRows("SigmoidGateBackward", body, stream, /*aligned=*/true, x, gate, dout, dx, dgate);
}

template <typename From, typename To>
absl::Status Convert(RowSpan<const From> in, RowSpan<To> out, CUstream_st* stream) {
  const ConvertBody<From, To> body = {MakeRows(in), MakeRows(out)};
  return MapRows("Convert", body, stream, /*aligned=*/true, in, out);
}

template <typename T>
absl::Status ScatterRows(RowSpan<const T> in, absl::Span<const std::int64_t> destinations,
                         RowSpan<T> out, CUstream_st* stream) {
  HW_CHECK_EQ(static_cast<std::int64_t>(destinations.size()), in.rows) << "destinations of rows";
  HW_CHECK_EQ(in.width, out.width) << "ScatterRows";
  const ScatterRowsBody<T> body = {MakeRows(in), destinations.data(), MakeRows(out), out.rows};
  constexpr int kVector = kVectorOf<T>;
  const bool aligned = AlignedTo(kVector * static_cast<int>(sizeof(T)), out);
  return MapRows("ScatterRows", body, stream, aligned, in);
}

#define HEADWISE_INSTANTIATE(T)                                                                   \
  template absl::Status Add(RowSpan<const T>, RowSpan<const T>, RowSpan<T>, CUstream_st*);        \
  template absl::Status AddBias(RowSpan<const T>, absl::Span<const float>, RowSpan<T>,            \
                                CUstream_st*);                                                    \
  template absl::Status SigmoidGateForward(RowSpan<const T>, RowSpan<const T>, RowSpan<T>,        \
                                           CUstream_st*);                                         \
  template absl::Status SigmoidGateBackward(RowSpan<const T>, RowSpan<const T>, RowSpan<const T>, \
                                            RowSpan<T>, RowSpan<T>, CUstream_st*);                \
  template absl::Status ScatterRows(RowSpan<const T>, absl::Span<const std::int64_t>, RowSpan<T>, \
                                    CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

template absl::Status Convert(RowSpan<const float>, RowSpan<BFloat16>, CUstream_st*);
template absl::Status Convert(RowSpan<const BFloat16>, RowSpan<float>, CUstream_st*);
template absl::Status Convert(RowSpan<const float>, RowSpan<float>, CUstream_st*);

}  // namespace headwise::HW_CUDA_NAMESPACE
