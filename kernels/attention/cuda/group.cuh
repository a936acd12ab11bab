// One kv head of one segment and the query heads that share it, in device code: group.h's numbering
// of rows (position by position, head by head), which keys a row sees, and where heads lie.
#ifndef HEADWISE_KERNELS_ATTENTION_CUDA_GROUP_CUH_
#define HEADWISE_KERNELS_ATTENTION_CUDA_GROUP_CUH_

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kTileKeys = 64;  // of the softmax: positions [64 i, 64 i + 64) of a segment
inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;

// What all kernels are launched with. Not all members are used by each.
template <typename T>
struct Arguments {
  Rows<const T> q, k, v, o, d_o;
  Rows<T> out, dq, dk, dv;
  Rows<const float> log_sum_exp_in;
  Rows<float> log_sum_exp;  // data may be null
  const float* sinks;       // [H]; null for none
  float* delta;             // [T, H]
  float* in_segment;        // [T], 1 or 0; null without sinks
  const AttentionSegment* segments;
  unsigned long long* first_bad_segment;  // NOLINT(google-runtime-int): atomicMin's type
  std::int64_t query_rows, key_rows;
  std::int64_t window;
  int query_heads, kv_heads, head_dim;
  float scale;
};

// Positions of keys, or rows of queries.
struct Range {
  std::int64_t begin, end;
  __device__ __forceinline__ bool empty() const { return begin >= end; }
  __device__ __forceinline__ bool Has(std::int64_t i) const { return i >= begin && i < end; }
};
__device__ __forceinline__ std::int64_t Least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
__device__ __forceinline__ std::int64_t Most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// Loads segment `index`. False, and reported, where it does not lie inside the rows.
template <typename T>
__device__ __forceinline__ bool LoadSegment(const Arguments<T>& a, unsigned index,
                                            AttentionSegment& s) {
  const AttentionSegment* const from = a.segments + index;
  s.query_begin = LoadCached(&from->query_begin);
  s.num_queries = LoadCached(&from->num_queries);
  s.query_position = LoadCached(&from->query_position);
  s.key_begin = LoadCached(&from->key_begin);
  s.num_keys = LoadCached(&from->num_keys);
  s.key_position = LoadCached(&from->key_position);
  const bool right = s.query_begin >= 0 && s.num_queries >= 0 && s.query_position >= 0 &&
                     s.key_begin >= 0 && s.num_keys >= 0 && s.key_position >= 0 &&
                     s.num_queries <= a.query_rows - s.query_begin &&
                     s.num_keys <= a.key_rows - s.key_begin;
  if (!right && threadIdx.x == 0) {
    atomicMin(a.first_bad_segment, static_cast<unsigned long long>(index));
  }
  return right;
}

template <typename T>
class Group {
 public:
  __device__ __forceinline__ Group(const Arguments<T>& a, const AttentionSegment& segment,
                                   int kv_head)
      : a_(a), s_(segment), kv_head_(kv_head), heads_(a.query_heads / a.kv_heads) {}

  __device__ __forceinline__ int heads() const { return heads_; }
  __device__ __forceinline__ std::int64_t num_rows() const { return s_.num_queries * heads_; }
  __device__ __forceinline__ Range keys() const {
    return {s_.key_position, s_.key_position + s_.num_keys};
  }

  __device__ __forceinline__ std::int64_t PositionOf(std::int64_t row) const {
    return s_.query_position + row / heads_;
  }
  __device__ __forceinline__ int HeadOf(std::int64_t row) const {
    return kv_head_ * heads_ + static_cast<int>(row % heads_);
  }
  __device__ __forceinline__ std::int64_t TokenOf(std::int64_t row) const {
    return s_.query_begin + row / heads_;
  }
  __device__ __forceinline__ std::int64_t KeyRowOf(std::int64_t position) const {
    return s_.key_begin + position - s_.key_position;
  }

  // Positions of the keys that are there and that the query at `position` sees.
  __device__ __forceinline__ Range KeysOf(std::int64_t position) const {
    const std::int64_t oldest =
        a_.window == 0 || a_.window > position ? 0 : position - a_.window + 1;
    return {Most(s_.key_position, oldest), Least(s_.key_position + s_.num_keys, position + 1)};
  }
  // The rows that see the key at `position`, which is there.
  __device__ __forceinline__ Range RowsOf(std::int64_t position) const {
    const std::int64_t first = s_.query_position;
    std::int64_t end = first + s_.num_queries;
    if (a_.window != 0 && a_.window < end - position) end = position + a_.window;
    return {(Most(first, position) - first) * heads_, (end - first) * heads_};
  }

  template <typename U>
  __device__ __forceinline__ U* QueryHead(const Rows<U>& q, std::int64_t row) const {
    return q.row(TokenOf(row)) + static_cast<std::int64_t>(HeadOf(row)) * a_.head_dim;
  }
  template <typename U>
  __device__ __forceinline__ U* KeyHead(const Rows<U>& k, std::int64_t position) const {
    return k.row(KeyRowOf(position)) + static_cast<std::int64_t>(kv_head_) * a_.head_dim;
  }

  // `count` rows of shared memory, `stride` apart from `begin` on, by the whole block: row i is
  // head(first + i), or zeros where `there` lacks first + i; zeros from head_dim on.
  template <typename Shared, typename Head>
  __device__ __forceinline__ void Stage(const Shared& to, int begin, int count, int stride,
                                        std::int64_t first, const Range& there,
                                        const Head& head) const {
    for (int i = threadIdx.x / 32; i < count; i += kWarps) {
      const bool is_there = there.Has(first + i);
      for (int d = threadIdx.x % 32; d < stride; d += 32) {
        Fp32 x = 0.0f;
        if (is_there && d < a_.head_dim) x = LoadElement(head(first + i) + d);
        to[begin + i * stride + d] = x.value;
      }
    }
  }

 private:
  const Arguments<T>& a_;
  const AttentionSegment& s_;
  int kv_head_, heads_;
};

// The serial chains of two rows, `a0` with each of kRows others: fma over ascending d, from +0.
// sums[i] = chain of x[x_begin + i * x_stride + d] and y[y_begin + d].
template <int kRows, typename Shared>
__device__ __forceinline__ void Chains(const Shared& x, int x_begin, int x_stride, const Shared& y,
                                       int y_begin, int head_dim, Fp32 (&sums)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[i] = 0.0f;
#pragma unroll 4
  for (int d = 0; d < head_dim; ++d) {
    const Fp32 b = static_cast<float>(y[y_begin + d]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sums[i] = Fma(static_cast<float>(x[x_begin + i * x_stride + d]), b, sums[i]);
    }
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_ATTENTION_CUDA_GROUP_CUH_
