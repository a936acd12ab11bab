// Dispatch and combine: a token's rows are found by row_of; a choice without a row (-1) is left out.
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256;  // of CombineBackward: a warp takes a choice

// The rows of tokens' choices.
struct ChosenRows {
  const std::int64_t* row_of;
  std::int64_t chosen;

  __device__ __forceinline__ std::int64_t Row(std::int64_t token, std::int64_t j) const {
    return LoadCached(row_of + token * chosen + j);
  }
};

// N elements at p as one value: a copy keeps every bit.
template <typename T, int N>
struct Bits;
template <>
struct Bits<BFloat16, 1> {
  using Type = unsigned short;
};
template <>
struct Bits<float, 1> {
  using Type = unsigned;
};
template <>
struct Bits<BFloat16, 8> {
  using Type = uint4;
};
template <>
struct Bits<float, 4> {
  using Type = uint4;
};

template <typename T>
struct DispatchForwardBody {
  static constexpr bool kFlattens = false;
  ChosenRows chosen;
  Rows<const T> x;
  Rows<T> rows;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t token, std::int64_t column) const {
    using Word = typename Bits<T, N>::Type;
    const Word value = LoadGlobal(reinterpret_cast<const Word*>(x.row(token) + column));
    for (std::int64_t j = 0; j < chosen.chosen; ++j) {
      const std::int64_t row = chosen.Row(token, j);
      if (row >= 0) StoreGlobal(reinterpret_cast<Word*>(rows.row(row) + column), value);
    }
  }
};

// The sum over a token's rows, weighted or not.
template <typename T, bool kWeighted>
struct SumRowsBody {
  static constexpr bool kFlattens = false;
  ChosenRows chosen;
  Rows<const float> weights;
  Rows<const T> rows;
  Rows<T> sums;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t token, std::int64_t column) const {
    Fp32 sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = 0.0f;
#pragma unroll 2
    for (std::int64_t j = 0; j < chosen.chosen; ++j) {
      const std::int64_t row = chosen.Row(token, j);
      if (row < 0) continue;
      Fp32 x[N];
      LoadElements(rows.row(row) + column, x);
      Fp32 weight = 1.0f;
      if (kWeighted) weight = LoadCached(weights.row(token) + j);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = kWeighted ? Fma(weight, x[i], sum[i]) : sum[i] + x[i];
    }
    StoreElements(sums.row(token) + column, sum);
  }
};

template <typename T>
struct CombineBackwardArguments {
  ChosenRows chosen;
  std::int64_t choices;
  Rows<const float> weights;
  Rows<const T> outputs, dy;
  Rows<T> doutputs;
  Rows<float> dweights;
  int width;
  bool outputs_paired, dy_paired, doutputs_paired;  // two elements may move at once
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 4)
    CombineBackwardKernel(const CombineBackwardArguments<T> a) {
  const std::int64_t choice =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (choice >= a.choices) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32;
  const std::int64_t token = DivideUnits(choice, static_cast<int>(a.chosen.chosen));
  const std::int64_t j = choice - token * a.chosen.chosen;
  const std::int64_t row = a.chosen.Row(token, j);
  if (row < 0) return;
  const Fp32 weight = LoadCached(a.weights.row(token) + j);
  const T* const dy = a.dy.row(token);
  const T* const output = a.outputs.row(row);
  T* const doutput = a.doutputs.row(row);
  PairChains chains;
  ForEachPair(a.width, lane, [&](int i, bool both) {
    const Pair gradient = LoadPair(dy + i, both, a.dy_paired);
    StorePair(doutput + i, {weight * gradient.first, weight * gradient.second}, both,
              a.doutputs_paired);
    chains.Add(gradient, LoadPair(output + i, both, a.outputs_paired), both);
  });
  const Fp32 dweight = chains.Sum();
  if (lane == 0) StoreGlobal(a.dweights.row(token) + j, dweight.value);
}

void CheckShape(const char* what, std::int64_t rows, std::int64_t width, std::int64_t want_rows,
                std::int64_t want_width) {
  HW_CHECK(rows == want_rows && width == want_width)
      << what << " is " << rows << " x " << width << ", must be " << want_rows << " x "
      << want_width;
}

ChosenRows MakeChosenRows(absl::Span<const std::int64_t> row_of, std::int64_t tokens) {
  const auto choices = static_cast<std::int64_t>(row_of.size());
  const std::int64_t chosen = tokens == 0 ? 0 : choices / tokens;
  HW_CHECK_EQ(tokens * chosen, choices) << "row_of for " << tokens << " tokens";
  HW_CHECK_LE(chosen, std::numeric_limits<std::int32_t>::max());
  return {row_of.data(), chosen};
}

}  // namespace

template <typename T>
absl::Status DispatchForward(absl::Span<const std::int64_t> row_of, RowSpan<const T> x,
                             RowSpan<T> rows, CUstream_st* stream) {
  const ChosenRows chosen = MakeChosenRows(row_of, x.rows);
  CheckShape("rows", rows.rows, rows.width, x.rows * chosen.chosen, x.width);
  if (chosen.chosen == 0) return absl::OkStatus();
  const DispatchForwardBody<T> body = {chosen, MakeRows(x), MakeRows(rows)};
  return MapRows("DispatchForward", body, stream, AlignedTo(16, rows), x);
}

template <typename T>
absl::Status DispatchBackward(absl::Span<const std::int64_t> row_of, RowSpan<const T> drows,
                              RowSpan<T> dx, CUstream_st* stream) {
  const ChosenRows chosen = MakeChosenRows(row_of, dx.rows);
  CheckShape("drows", drows.rows, drows.width, dx.rows * chosen.chosen, dx.width);
  const SumRowsBody<T, false> body = {chosen, {}, MakeRows(drows), MakeRows(dx)};
  return MapRows("DispatchBackward", body, stream, AlignedTo(16, drows), dx);
}

template <typename T>
absl::Status CombineForward(absl::Span<const std::int64_t> row_of, RowSpan<const float> weights,
                            RowSpan<const T> outputs, RowSpan<T> y, CUstream_st* stream) {
  const ChosenRows chosen = MakeChosenRows(row_of, y.rows);
  if (y.rows > 0) CheckShape("weights", weights.rows, weights.width, y.rows, chosen.chosen);
  CheckShape("outputs", outputs.rows, outputs.width, y.rows * chosen.chosen, y.width);
  const SumRowsBody<T, true> body = {chosen, MakeRows(weights), MakeRows(outputs), MakeRows(y)};
  return MapRows("CombineForward", body, stream, AlignedTo(16, outputs), y);
}

template <typename T>
absl::Status CombineBackward(absl::Span<const std::int64_t> row_of, RowSpan<const float> weights,
                             RowSpan<const T> outputs, RowSpan<const T> dy, RowSpan<T> doutputs,
                             RowSpan<float> dweights, CUstream_st* stream) {
  const ChosenRows chosen = MakeChosenRows(row_of, dy.rows);
  const std::int64_t choices = dy.rows * chosen.chosen;
  if (dy.rows > 0) {
    CheckShape("weights", weights.rows, weights.width, dy.rows, chosen.chosen);
    CheckShape("dweights", dweights.rows, dweights.width, dy.rows, chosen.chosen);
  }
  CheckShape("outputs", outputs.rows, outputs.width, choices, dy.width);
  CheckShape("doutputs", doutputs.rows, doutputs.width, choices, dy.width);
  HW_CHECK_LE(dy.width, std::numeric_limits<int>::max() / 2);
  if (choices == 0) return absl::OkStatus();
  const CombineBackwardArguments<T> a = {.chosen = chosen,
                                         .choices = choices,
                                         .weights = MakeRows(weights),
                                         .outputs = MakeRows(outputs),
                                         .dy = MakeRows(dy),
                                         .doutputs = MakeRows(doutputs),
                                         .dweights = MakeRows(dweights),
                                         .width = static_cast<int>(dy.width),
                                         .outputs_paired = AlignedTo(2 * sizeof(T), outputs),
                                         .dy_paired = AlignedTo(2 * sizeof(T), dy),
                                         .doutputs_paired = AlignedTo(2 * sizeof(T), doutputs)};
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("outputs", "rows", choices, 1, kThreads / 32, blocks));
  HW_LAUNCH((CombineBackwardKernel<T>), static_cast<unsigned>(blocks), kThreads, 0, stream, a);
  return LaunchStatus("CombineBackward");
}

#define HEADWISE_INSTANTIATE(T)                                                               \
  template absl::Status DispatchForward(absl::Span<const std::int64_t>, RowSpan<const T>,     \
                                        RowSpan<T>, CUstream_st*);                            \
  template absl::Status DispatchBackward(absl::Span<const std::int64_t>, RowSpan<const T>,    \
                                         RowSpan<T>, CUstream_st*);                           \
  template absl::Status CombineForward(absl::Span<const std::int64_t>, RowSpan<const float>,  \
                                       RowSpan<const T>, RowSpan<T>, CUstream_st*);           \
  template absl::Status CombineBackward(absl::Span<const std::int64_t>, RowSpan<const float>, \
                                        RowSpan<const T>, RowSpan<const T>, RowSpan<T>,       \
                                        RowSpan<float>, CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
