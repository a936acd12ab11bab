// The bits of a product do not depend on the number of threads, at shapes of a model and at shapes
// where threaded libraries are known to change them.
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/test_problem.h"

namespace headwise {
namespace {

template <typename P>
class GemmThreads : public testing::Test {
 protected:
  static void ExpectSameBits(GemmBackend backend, Which which, const Sizes& sizes) {
    const P p = P::Random(which, sizes, /*with_bias=*/true);
    ThreadPool one(1);
    const auto expected = p.Run(backend, one);
    for (const int threads : {2, 3}) {
      ThreadPool pool(threads);
      SCOPED_TRACE(testing::Message() << Name(backend) << " on " << threads << " threads");
      headwise::ExpectSameBits(p.Run(backend, pool), expected, which, sizes);
    }
  }
};
using AllTypes = testing::Types<Problem<float, float>, Problem<BFloat16, float>>;
TYPED_TEST_SUITE(GemmThreads, AllTypes);

TYPED_TEST(GemmThreads, SmallShapes) {
  for (const GemmBackend backend : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    for (const Which which : kAllProducts) {
      for (const Sizes& s :
           {Sizes{1, 768, 512}, Sizes{7, 65, 33}, Sizes{130, 96, 200}, Sizes{300, 257, 65}}) {
        this->ExpectSameBits(backend, which, s);
      }
    }
  }
}

// m x k x n of the product itself, whichever it is.
void ForEachProductOf(std::int64_t m, std::int64_t k, std::int64_t n, auto f) {
  f(Which::kForward, Sizes{m, n, k});
  f(Which::kBackwardInput, Sizes{m, k, n});
  f(Which::kBackwardWeight, Sizes{k, m, n});
}

TYPED_TEST(GemmThreads, LongContractionOfFewRows) {
  for (const GemmBackend backend : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    ForEachProductOf(16, 4096, 64,
                     [&](Which which, const Sizes& s) { this->ExpectSameBits(backend, which, s); });
  }
}

TYPED_TEST(GemmThreads, VeryLongContraction) {
  for (const GemmBackend backend : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    ForEachProductOf(64, 65536, 64,
                     [&](Which which, const Sizes& s) { this->ExpectSameBits(backend, which, s); });
  }
}

}  // namespace
}  // namespace headwise
