// newton_schulz: orthogonalises blocks of a matrix, each on its own: O ~ U V^T for X = U S V^T, by
// an odd polynomial iteration in Gram form.
//
// A block X [d, n] (rows <= columns; a taller block works on its transpose, and so does a square
// one of a matrix stored transposed) is scaled by a power of two, its Gram matrix G = X X^T is
// formed once, the iteration runs on d x d matrices, and X is touched a second time to apply the
// result: 4 d^2 n + O(d^3) operations instead of 5 (4 d^2 n + 2 d^3). The order of every operation is the contract of docs/numerics.md: reference, CPU and CUDA
// return the same bits, for any number of threads and any batch.
//
// Keller Jordan et al., "Muon" (2024), for the iteration; the quintic coefficients are theirs.
//
//   const HeadBlocks blocks = HeadBlocks::FromPacked(layout);
//   absl::Status s = NewtonSchulz(Quintic5(), {{u, o, &blocks}}, pool);
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_NEWTON_SCHULZ_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_NEWTON_SCHULZ_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/coefficients.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kNewtonSchulzContractVersion = 1;

// One matrix and its blocks. input and output [rows, cols], fp32, row-major, rows may be strided;
// output may be the input itself (same data and stride) but must not overlap it otherwise.
// blocks->axis_size() is rows (kRows) or cols (kColumns).
struct NewtonSchulzProblem {
  RowSpan<const float> input;
  RowSpan<float> output;
  const HeadBlocks* blocks = nullptr;  // not owned
  // Both are stored [in, out]. The result is the transposed one of the same matrices stored [out,
  // in], bit for bit: only a square block needs to know.
  bool transposed_storage = false;
};

// Orthogonalises every block of every problem. A block of zeros gives zeros. Inputs must be finite
// (the optimizer's guard sees to it); a non-finite element gives an unspecified result in its own
// block only. kInvalidArgument names the problem and the mismatch; on an error nothing is written.
absl::Status NewtonSchulz(const NewtonSchulzCoefficients& coefficients,
                          absl::Span<const NewtonSchulzProblem> problems, ThreadPool& pool);

// The specification: short, serial. Same arguments, same bits.
absl::Status NewtonSchulzReference(const NewtonSchulzCoefficients& coefficients,
                                   absl::Span<const NewtonSchulzProblem> problems);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_NEWTON_SCHULZ_H_
