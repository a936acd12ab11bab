// embedding on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/embedding:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/embedding:cuda_emulated)
//
// Both return the bits of embedding.h. Forward is one launch. Backward is three: tokens are ordered
// by table row and then by their place in the text (each is compared with all others: T^2 integer
// comparisons, no atomics), every row's part of that order is found, and a row's sum runs over its
// part, so that each addition is that of the contract. A launcher enqueues on `stream` and returns;
// it never allocates and never waits, so that a launch can be captured in a CUDA graph. Without
// elements nothing is launched.
//
//   HW_RETURN_IF_ERROR(
//       cuda::EmbeddingForward<BFloat16>(tokens, table, hidden, first_bad_token, stream));
//
// Traffic: a row of the table is read for each token, and each element of the output written once;
// in the backward each element of dout is read once and each of dtable written once. Where
// addresses and strides are multiples of 16 bytes, fp32 moves in 16-byte vectors.
//
// On sm_90a: EmbeddingOrderKernel 26 registers and 1 KiB of static shared memory,
// EmbeddingStartsKernel 20, the lookup (MapRowsKernel) 30, the sums (MapRowsKernel) 38; no spills.
// No CUDA header is included here.
#ifndef HEADWISE_KERNELS_EMBEDDING_CUDA_H_
#define HEADWISE_KERNELS_EMBEDDING_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/vocabulary_shard.h"

struct CUstream_st;

namespace headwise {

// Integers of scratch that the backward of `tokens` tokens into `rows` rows of a table needs.
std::int64_t EmbeddingBackwardScratch(std::int64_t tokens, std::int64_t rows);

// As the functions of these names in embedding.h. T is float or BFloat16. Matrices, tokens and
// scratch are device memory of the caller, left alone until the stream has passed; scratch
// [EmbeddingBackwardScratch()], contents irrelevant, overlaps nothing else.
//
// Tokens are in device memory, so a token outside the vocabulary is found by the kernel: nothing is
// written for it, it adds to no gradient, and the smallest index of such a token is kept in
// *first_bad_token (atomic minimum). Set that to all ones beforehand and read it at your next
// synchronisation: still all ones means that there was none. Shapes and shards are checked here, as
// there. kInvalidArgument for a grid of more than 2^31 - 1 blocks, kInternal with CUDA's message if
// a launch fails.
#define HW_DECLARE_LAUNCHERS                                                                       \
  template <typename T>                                                                            \
  absl::Status EmbeddingForward(absl::Span<const std::int32_t> tokens, RowSpan<const float> table, \
                                RowSpan<T> out, std::uint64_t* first_bad_token,                    \
                                CUstream_st* stream, VocabularyShard shard = {});                  \
  template <typename T>                                                                            \
  absl::Status EmbeddingBackward(absl::Span<const std::int32_t> tokens, RowSpan<const T> dout,     \
                                 RowSpan<float> dtable, std::int32_t* scratch,                     \
                                 std::uint64_t* first_bad_token, CUstream_st* stream,              \
                                 VocabularyShard shard = {});
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_EMBEDDING_CUDA_H_
