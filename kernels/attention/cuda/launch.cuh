// What the launchers of both directions share.
#ifndef HEADWISE_KERNELS_ATTENTION_CUDA_LAUNCH_CUH_
#define HEADWISE_KERNELS_ATTENTION_CUDA_LAUNCH_CUH_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "kernels/attention/check_arguments.h"
#include "kernels/attention/cuda.h"
#include "kernels/attention/cuda/group.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// Checks what the host can check.
inline absl::Status CheckCall(const Attention& op, absl::Span<const AttentionSegment> segments,
                              std::int64_t query_rows, std::int64_t query_width,
                              std::int64_t key_rows, std::int64_t key_width, std::size_t sinks,
                              const AttentionLaunch& launch) {
  attention::CheckArguments(op, {}, query_rows, query_width, key_rows, key_width);
  attention::CheckSinks(op, sinks);
  HW_CHECK(launch.first_bad_segment != nullptr) << "first_bad_segment";
  if (op.head_dim > kMostCudaHeadDim) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "head_dim: found %d, expected at most %d on CUDA", op.head_dim, kMostCudaHeadDim));
  }
  constexpr std::int64_t kMost = 65535;  // of a grid's y and z
  const auto count = static_cast<std::int64_t>(segments.size());
  if (count > kMost || op.kv_heads > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("found %d segments and %d kv heads, expected at most %d of each on CUDA; "
                        "split the call",
                        count, op.kv_heads, kMost));
  }
  return absl::OkStatus();
}

template <typename T>
Arguments<T> MakeArguments(const Attention& op, absl::Span<const AttentionSegment> segments,
                           RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                           absl::Span<const float> sinks, const AttentionLaunch& launch) {
  return {.q = MakeRows(q),
          .k = MakeRows(k),
          .v = MakeRows(v),
          .sinks = sinks.empty() ? nullptr : sinks.data(),
          .segments = segments.data(),
          .first_bad_segment = reinterpret_cast<unsigned long long*>(launch.first_bad_segment),
          .query_rows = q.rows,
          .key_rows = k.rows,
          .window = op.window,
          .query_heads = static_cast<int>(op.query_heads),
          .kv_heads = static_cast<int>(op.kv_heads),
          .head_dim = static_cast<int>(op.head_dim),
          .scale = static_cast<float>(op.scale)};
}

// Blocks of `rows_of_block` of `rows` rows, for each kv head and segment. A block's rows are those
// of its segment, which has at most as many.
inline dim3 GridOf(std::int64_t rows, int rows_of_block, const Attention& op,
                   absl::Span<const AttentionSegment> segments) {
  const std::int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  HW_CHECK_LT(blocks, std::int64_t{1} << 31);
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(op.kv_heads),
              static_cast<unsigned>(segments.size()));
}

// Elements of a head that a lane holds: head_dim / 32, rounded up to 1, 2, 4 or 8.
inline int PerLane(std::int64_t head_dim) {
  return head_dim <= 32 ? 1 : head_dim <= 64 ? 2 : head_dim <= 128 ? 4 : 8;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_ATTENTION_CUDA_LAUNCH_CUH_
