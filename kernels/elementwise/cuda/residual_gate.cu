// Launchers of the residual gate. A thread keeps alpha and beta of its channels and walks down
// rows.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/common/reductions.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kForwardRows = 16;
constexpr int kTile = static_cast<int>(kTokenTile);

// The gate of one channel.
struct Gate {
  __device__ __forceinline__ Gate(float gate, float temperature, float epsilon)
      : sigmoid(Fp32(gate) / temperature) {
    const Fp32 p = sigmoid.complement * (Fp32(1.0f) + sigmoid.value);
    clamped = p < epsilon;
    alpha = Sqrt(Select(clamped, epsilon, p));
  }
  Sigmoids sigmoid;  // beta, and 1 - beta
  bool clamped;
  Fp32 alpha;
};

template <typename T>
struct Arguments {
  Rows<const T> residual, branch, dout;
  Rows<T> out;
  Rows<T> dresidual, dbranch;
  const float* gate;
  float* partials;  // [tiles, 2, width]: dalpha, then dbeta
  float temperature, epsilon;
  std::int64_t rows;
  int width;
  unsigned blocks_per_tile;  // of rows
};

// The rows of a block, and the thread's first column; N columns a thread.
struct Place {
  std::int64_t tile, begin, end;
  int column;
};
template <int N, typename T>
__device__ __forceinline__ Place FindPlace(const Arguments<T>& a, int rows_of_tile) {
  const std::int64_t tile = blockIdx.x / a.blocks_per_tile;
  const std::int64_t begin = tile * rows_of_tile;
  const std::int64_t end = begin + rows_of_tile < a.rows ? begin + rows_of_tile : a.rows;
  const unsigned thread = blockIdx.x % a.blocks_per_tile * kThreads + threadIdx.x;
  return {tile, begin, end, static_cast<int>(thread * N)};
}

template <int N, typename T>
__device__ __forceinline__ void LoadGates(const Arguments<T>& a, int column, Fp32 (&alpha)[N],
                                          Fp32 (&beta)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Gate gate(LoadCached(a.gate + column + i), a.temperature, a.epsilon);
    alpha[i] = gate.alpha;
    beta[i] = gate.sigmoid.value;
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 8) ResidualGateForwardKernel(const Arguments<T> a) {
  const Place place = FindPlace<N>(a, kForwardRows);
  if (place.column >= a.width) return;
  Fp32 alpha[N], beta[N];
  LoadGates(a, place.column, alpha, beta);
  for (std::int64_t t = place.begin; t < place.end; ++t) {
    Fp32 h[N], x[N];
    LoadElements(a.residual.row(t) + place.column, h);
    LoadElements(a.branch.row(t) + place.column, x);
#pragma unroll
    for (int i = 0; i < N; ++i) h[i] = alpha[i] * h[i] + beta[i] * x[i];
    StoreElements(a.out.row(t) + place.column, h);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 4) ResidualGateBackwardKernel(const Arguments<T> a) {
  const Place place = FindPlace<N>(a, kTile);
  if (place.column >= a.width) return;
  Fp32 alpha[N], beta[N], dalpha[N], dbeta[N];
  LoadGates(a, place.column, alpha, beta);
#pragma unroll
  for (int i = 0; i < N; ++i) dalpha[i] = dbeta[i] = 0.0f;
  for (std::int64_t t = place.begin; t < place.end; ++t) {
    Fp32 h[N], x[N], g[N];
    LoadElements(a.residual.row(t) + place.column, h);
    LoadElements(a.branch.row(t) + place.column, x);
    LoadElements(a.dout.row(t) + place.column, g);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      dalpha[i] = Fma(g[i], h[i], dalpha[i]);
      dbeta[i] = Fma(g[i], x[i], dbeta[i]);
      h[i] = g[i] * alpha[i];
      x[i] = g[i] * beta[i];
    }
    StoreElements(a.dresidual.row(t) + place.column, h);
    StoreElements(a.dbranch.row(t) + place.column, x);
  }
  float* const partial = a.partials + place.tile * 2 * a.width + place.column;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    StoreGlobal(partial + i, dalpha[i].value);
    StoreGlobal(partial + a.width + i, dbeta[i].value);
  }
}

// dgate [width] of the sums of dalpha and dbeta, [2, width].
__global__ void __launch_bounds__(kThreads)
    ResidualGateTailKernel(const float* gate, const float* sums, float* dgate, float temperature,
                           float epsilon, int width) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= width) return;
  const Gate g(LoadCached(gate + i), temperature, epsilon);
  const Fp32 beta = g.sigmoid.value;
  const Fp32 dalpha = LoadCached(sums + i), dbeta = LoadCached(sums + width + i);
  const Fp32 d = Select(g.clamped, dbeta, Fma(-dalpha, beta / g.alpha, dbeta));
  StoreGlobal(dgate + i, ((d * (beta * g.sigmoid.complement)) / temperature).value);
}

template <typename T>
Arguments<T> MakeArguments(const ResidualGate& op, RowSpan<const T> residual,
                           RowSpan<const T> branch, absl::Span<const float> gate) {
  HW_CHECK(op.temperature > 0) << "temperature " << op.temperature;
  HW_CHECK(op.epsilon > 0) << "epsilon " << op.epsilon;
  HW_CHECK_EQ(branch.rows, residual.rows) << "branch and residual";
  HW_CHECK_EQ(branch.width, residual.width) << "branch and residual";
  HW_CHECK_EQ(static_cast<std::int64_t>(gate.size()), residual.width) << "gate and residual";
  HW_CHECK_LE(residual.width, std::numeric_limits<int>::max() / 16);
  return {.residual = MakeRows(residual),
          .branch = MakeRows(branch),
          .gate = gate.data(),
          .temperature = static_cast<float>(op.temperature),
          .epsilon = static_cast<float>(op.epsilon),
          .rows = residual.rows,
          .width = static_cast<int>(residual.width)};
}

template <typename S>
void CheckShape(const S& span, std::int64_t rows, std::int64_t width, const char* what) {
  HW_CHECK_EQ(span.rows, rows) << what;
  HW_CHECK_EQ(span.width, width) << what;
}

// The grid of a kernel whose blocks take `rows_of_tile` rows and N columns a thread.
template <typename T>
absl::Status MakeGrid(Arguments<T>& a, int rows_of_tile, int columns_of_thread, unsigned& blocks) {
  const int columns = columns_of_thread * kThreads;
  a.blocks_per_tile = (a.width + columns - 1) / columns;
  std::int64_t count;
  HW_RETURN_IF_ERROR(CheckBlocks("residual", "tiles of rows",
                                 (a.rows + rows_of_tile - 1) / rows_of_tile, a.blocks_per_tile, 1,
                                 count));
  blocks = static_cast<unsigned>(count);
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::Status ResidualGateForward(const ResidualGate& op, RowSpan<const T> residual,
                                 RowSpan<const T> branch, absl::Span<const float> gate,
                                 RowSpan<T> out, CUstream_st* stream) {
  Arguments<T> a = MakeArguments(op, residual, branch, gate);
  CheckShape(out, residual.rows, residual.width, "out and residual");
  if (a.rows == 0 || a.width == 0) return absl::OkStatus();
  a.out = MakeRows(out);
  constexpr int kVector = kVectorOf<T>;
  const bool vectors = a.width % kVector == 0 && AlignedTo(16, residual) && AlignedTo(16, branch) &&
                       AlignedTo(16, out);
  unsigned blocks;
  HW_RETURN_IF_ERROR(MakeGrid(a, kForwardRows, vectors ? kVector : 1, blocks));
  if (vectors) {
    HW_LAUNCH((ResidualGateForwardKernel<T, kVector>), blocks, kThreads, 0, stream, a);
  } else {
    HW_LAUNCH((ResidualGateForwardKernel<T, 1>), blocks, kThreads, 0, stream, a);
  }
  return LaunchStatus("ResidualGateForward");
}

template <typename T>
absl::Status ResidualGateBackward(const ResidualGate& op, RowSpan<const T> residual,
                                  RowSpan<const T> branch, absl::Span<const float> gate,
                                  RowSpan<const T> dout, RowSpan<T> dresidual, RowSpan<T> dbranch,
                                  absl::Span<float> dgate, float* scratch, CUstream_st* stream) {
  Arguments<T> a = MakeArguments(op, residual, branch, gate);
  CheckShape(dout, residual.rows, residual.width, "dout and residual");
  CheckShape(dresidual, residual.rows, residual.width, "dresidual and residual");
  CheckShape(dbranch, residual.rows, residual.width, "dbranch and residual");
  HW_CHECK_EQ(dgate.size(), gate.size()) << "dgate and gate";
  if (a.width == 0) return absl::OkStatus();
  HW_CHECK(scratch != nullptr) << "scratch";
  a.dout = MakeRows(dout);
  a.dresidual = MakeRows(dresidual);
  a.dbranch = MakeRows(dbranch);
  float* const sums = scratch;  // [2, width]
  a.partials = scratch + 2 * residual.width;
  constexpr int kVector = kVectorOf<T>;
  const bool vectors = a.width % kVector == 0 && AlignedTo(16, residual) && AlignedTo(16, branch) &&
                       AlignedTo(16, dout) && AlignedTo(16, dresidual) && AlignedTo(16, dbranch);
  if (a.rows > 0) {
    unsigned blocks;
    HW_RETURN_IF_ERROR(MakeGrid(a, kTile, vectors ? kVector : 1, blocks));
    if (vectors) {
      HW_LAUNCH((ResidualGateBackwardKernel<T, kVector>), blocks, kThreads, 0, stream, a);
    } else {
      HW_LAUNCH((ResidualGateBackwardKernel<T, 1>), blocks, kThreads, 0, stream, a);
    }
    HW_RETURN_IF_ERROR(LaunchStatus("ResidualGateBackward"));
  }
  const std::int64_t tiles = (a.rows + kTile - 1) / kTile, columns = 2 * residual.width;
  HW_RETURN_IF_ERROR(SumColumns(RowSpan<const float>(a.partials, tiles, columns),
                                RowSpan<float>(sums, 1, columns), {}, stream));
  HW_LAUNCH(ResidualGateTailKernel, static_cast<unsigned>((a.width + kThreads - 1) / kThreads),
            kThreads, 0, stream, a.gate, sums, dgate.data(), a.temperature, a.epsilon, a.width);
  return LaunchStatus("ResidualGateTail");
}

#define HEADWISE_INSTANTIATE(T)                                                                    \
  template absl::Status ResidualGateForward(const ResidualGate&, RowSpan<const T>,                 \
                                            RowSpan<const T>, absl::Span<const float>, RowSpan<T>, \
                                            CUstream_st*);                                         \
  template absl::Status ResidualGateBackward(                                                      \
      const ResidualGate&, RowSpan<const T>, RowSpan<const T>, absl::Span<const float>,            \
      RowSpan<const T>, RowSpan<T>, RowSpan<T>, absl::Span<float>, float*, CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
