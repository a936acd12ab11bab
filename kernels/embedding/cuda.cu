#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/embedding/cuda.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256;

// Tokens, and the rows that the table holds of them.
struct Lookup {
  const std::int32_t* tokens;
  std::int64_t count;
  std::int64_t begin, rows;  // ids [begin, begin + rows)
  std::int64_t vocabulary;
  unsigned long long* first_bad_token;  // NOLINT(google-runtime-int): atomicMin's type

  // Whether token t is of the vocabulary. Where it is not, `reports` keeps the smallest such t.
  __device__ __forceinline__ bool Find(std::int64_t t, bool reports, std::int64_t& token) const {
    token = LoadCached(tokens + t);
    if (token >= 0 && token < vocabulary) return true;
    if (reports) atomicMin(first_bad_token, static_cast<unsigned long long>(t));
    return false;
  }
  // The row of a token; `rows` where the table does not hold it.
  __device__ __forceinline__ std::int32_t Row(std::int64_t token) const {
    const std::int64_t row = token - begin;
    return static_cast<std::int32_t>(row >= 0 && row < rows ? row : rows);
  }
  // The same of token t, in whatever order; of a token outside the vocabulary `rows` too.
  __device__ __forceinline__ std::int32_t RowOfToken(std::int64_t t, bool reports) const {
    std::int64_t token;
    return Find(t, reports, token) ? Row(token) : static_cast<std::int32_t>(rows);
  }
};

template <typename T>
struct ForwardBody {
  static constexpr bool kFlattens = false;
  Lookup lookup;
  Rows<const float> table;
  Rows<T> out;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t t, std::int64_t column) const {
    std::int64_t token;
    if (!lookup.Find(t, /*reports=*/column == 0, token)) return;
    const std::int32_t row = lookup.Row(token);
    Fp32 x[N];
    if (row < lookup.rows) {
      LoadCachedFloats(table.row(row) + column, x);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = 0.0f;
    }
    StoreElements(out.row(t) + column, x);
  }
};

// order[p] = the token that comes p-th by row and, of equal rows, by index.
__global__ void __launch_bounds__(kThreads)
    EmbeddingOrderKernel(const Lookup lookup, std::int32_t* order) {
  HW_SHARED(std::int32_t, others, kThreads);
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  std::int32_t row = 0;
  if (t < lookup.count) row = lookup.RowOfToken(t, /*reports=*/true);
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < lookup.count; first += kThreads) {
    if (first + threadIdx.x < lookup.count) {
      others[threadIdx.x] = lookup.RowOfToken(first + threadIdx.x, /*reports=*/false);
    }
    __syncthreads();
    const int count = static_cast<int>(
        min(static_cast<long long>(kThreads), static_cast<long long>(lookup.count - first)));
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const std::int32_t other = others[i];
      before += other < row || (other == row && first + i < t) ? 1 : 0;
    }
    __syncthreads();
  }
  if (t < lookup.count) StoreGlobal(order + before, static_cast<std::int32_t>(t));
}

// starts[v] = how many tokens come before those of row v, for v = 0 ... rows.
__global__ void __launch_bounds__(kThreads)
    EmbeddingStartsKernel(const Lookup lookup, const std::int32_t* order, std::int32_t* starts) {
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (v > lookup.rows) return;
  std::int64_t least = 0, most = lookup.count;
  while (least < most) {
    const std::int64_t middle = (least + most) / 2;
    if (lookup.RowOfToken(LoadCached(order + middle), /*reports=*/false) < v) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  StoreGlobal(starts + v, static_cast<std::int32_t>(least));
}

template <typename T>
struct BackwardBody {
  static constexpr bool kFlattens = false;
  Rows<const T> dout;
  Rows<float> dtable;
  const std::int32_t* order;
  const std::int32_t* starts;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = 0.0f;
    const int end = LoadCached(starts + row + 1);
#pragma unroll 4
    for (int p = LoadCached(starts + row); p < end; ++p) {
      Fp32 x[N];
      LoadElements(dout.row(LoadCached(order + p)) + column, x);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = sum[i] + x[i];
    }
    StoreElements(dtable.row(row) + column, sum);
  }
};

Lookup MakeLookup(absl::Span<const std::int32_t> tokens, std::int64_t rows, VocabularyShard shard,
                  std::uint64_t* first_bad_token) {
  const std::int64_t vocabulary = CheckVocabularyShard(shard, rows);
  HW_CHECK(first_bad_token != nullptr || tokens.empty()) << "first_bad_token";
  HW_CHECK_LT(rows, std::numeric_limits<std::int32_t>::max());
  return {.tokens = tokens.data(),
          .count = static_cast<std::int64_t>(tokens.size()),
          .begin = shard.begin,
          .rows = rows,
          .vocabulary = vocabulary,
          .first_bad_token = reinterpret_cast<unsigned long long*>(first_bad_token)};
}

}  // namespace

template <typename T>
absl::Status EmbeddingForward(absl::Span<const std::int32_t> tokens, RowSpan<const float> table,
                              RowSpan<T> out, std::uint64_t* first_bad_token, CUstream_st* stream,
                              VocabularyShard shard) {
  HW_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), out.rows);
  HW_CHECK_EQ(table.width, out.width);
  const ForwardBody<T> body = {MakeLookup(tokens, table.rows, shard, first_bad_token),
                               MakeRows(table), MakeRows(out)};
  return MapRows("EmbeddingForward", body, stream, AlignedTo(16, table), out);
}

template <typename T>
absl::Status EmbeddingBackward(absl::Span<const std::int32_t> tokens, RowSpan<const T> dout,
                               RowSpan<float> dtable, std::int32_t* scratch,
                               std::uint64_t* first_bad_token, CUstream_st* stream,
                               VocabularyShard shard) {
  HW_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), dout.rows);
  HW_CHECK_EQ(dtable.width, dout.width);
  HW_CHECK_LE(dout.rows, std::numeric_limits<std::int32_t>::max());
  const Lookup lookup = MakeLookup(tokens, dtable.rows, shard, first_bad_token);
  if (dtable.width == 0 || (dtable.rows == 0 && dout.rows == 0)) return absl::OkStatus();
  HW_CHECK(scratch != nullptr) << "scratch";
  std::int32_t* const order = scratch;
  std::int32_t* const starts = scratch + lookup.count;
  std::int64_t blocks;
  if (lookup.count > 0) {
    HW_RETURN_IF_ERROR(CheckBlocks("dout", "rows", lookup.count, 1, kThreads, blocks));
    HW_LAUNCH(EmbeddingOrderKernel, static_cast<unsigned>(blocks), kThreads, 0, stream, lookup,
              order);
    HW_RETURN_IF_ERROR(LaunchStatus("EmbeddingOrder"));
  }
  HW_RETURN_IF_ERROR(CheckBlocks("dtable", "rows", lookup.rows + 1, 1, kThreads, blocks));
  HW_LAUNCH(EmbeddingStartsKernel, static_cast<unsigned>(blocks), kThreads, 0, stream, lookup,
            order, starts);
  HW_RETURN_IF_ERROR(LaunchStatus("EmbeddingStarts"));
  const BackwardBody<T> body = {MakeRows(dout), MakeRows(dtable), order, starts};
  const bool aligned = AlignedTo(4 * static_cast<int>(sizeof(T)), dout);
  return MapRows("EmbeddingBackward", body, stream, aligned, dtable);
}

#define HEADWISE_INSTANTIATE(T)                                                                \
  template absl::Status EmbeddingForward(absl::Span<const std::int32_t>, RowSpan<const float>, \
                                         RowSpan<T>, std::uint64_t*, CUstream_st*,             \
                                         VocabularyShard);                                     \
  template absl::Status EmbeddingBackward(absl::Span<const std::int32_t>, RowSpan<const T>,    \
                                          RowSpan<float>, std::int32_t*, std::uint64_t*,       \
                                          CUstream_st*, VocabularyShard);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
