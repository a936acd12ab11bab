// Without AVX-512 oneDNN has no bfloat16 product; kOneDnn then runs as kContract.
#include <cstdlib>

#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/test_problem.h"

namespace headwise {
namespace {

TEST(OneDnnFallback, BFloat16WithoutAvx512RunsAsContract) {
  // oneDNN reads it once, at its first use in the process.
  ASSERT_EQ(setenv("ONEDNN_MAX_CPU_ISA", "AVX2", /*overwrite=*/1), 0);
  ThreadPool pool(2);
  const Sizes s = {130, 300, 520};
  for (const Which which : {Which::kForward, Which::kBackwardInput}) {
    const auto p = Problem<BFloat16, BFloat16>::Random(which, s, /*with_bias=*/true);
    ExpectSameBits(p.Run(GemmBackend::kOneDnn, pool), p.TripleLoop(), which, s);
  }
  const auto dw = Problem<BFloat16, float>::Random(Which::kBackwardWeight, s, false);
  ExpectSameBits(dw.Run(GemmBackend::kOneDnn, pool), dw.TripleLoop(), Which::kBackwardWeight, s);
}

}  // namespace
}  // namespace headwise
