// For tests: runs the reference and the fast path on one input and expects the same bits from both.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_PARITY_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_PARITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace headwise {

using FloatMatrix = TestMatrix<float>;

// One block per size, one after the other.
inline HeadBlocks BlocksOfSizes(const std::vector<std::int64_t>& sizes,
                                BlockAxis axis = BlockAxis::kRows) {
  std::vector<HeadBlock> blocks(sizes.size());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    blocks[i].ranges = {{begin, sizes[i]}};
    begin += sizes[i];
  }
  return *HeadBlocks::Create(begin, blocks, axis);
}

// The reference's result, in a matrix of its own.
inline FloatMatrix ReferenceOf(const NewtonSchulzCoefficients& coefficients,
                               const FloatMatrix& input, const HeadBlocks& blocks) {
  FloatMatrix output(input.rows(), input.width());
  const absl::Status status =
      NewtonSchulzReference(coefficients, {{{input.view(), output.span(), &blocks}}});
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

// The fast path's result on so many threads.
inline FloatMatrix FastOf(const NewtonSchulzCoefficients& coefficients, const FloatMatrix& input,
                          const HeadBlocks& blocks, int threads = 2) {
  FloatMatrix output(input.rows(), input.width());
  ThreadPool pool(threads);
  const absl::Status status =
      NewtonSchulz(coefficients, {{{input.view(), output.span(), &blocks}}}, pool);
  EXPECT_TRUE(status.ok()) << status;
  output.ExpectGapsUntouched();
  return output;
}

// Fast path == reference.
inline void ExpectParity(const NewtonSchulzCoefficients& coefficients, const FloatMatrix& input,
                         const HeadBlocks& blocks, const std::string& what, int threads = 2) {
  const FloatMatrix expected = ReferenceOf(coefficients, input, blocks);
  const FloatMatrix actual = FastOf(coefficients, input, blocks, threads);
  ExpectSameBits(actual.view(), expected.view(), what);
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_PARITY_H_
