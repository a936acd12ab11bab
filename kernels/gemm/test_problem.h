// Random products for the tests of gemm.h, and the plain triple loop they are measured against. All
// matrices are strided and misaligned.
#ifndef HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_
#define HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_

#include <cmath>
#include <cstdint>
#include <ostream>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype/dtype.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {

enum class Which { kForward, kBackwardInput, kBackwardWeight };
inline constexpr Which kAllProducts[] = {Which::kForward, Which::kBackwardInput,
                                         Which::kBackwardWeight};

struct Sizes {
  std::int64_t tokens, out_features, in_features;
};

inline std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << "T " << s.tokens << " N " << s.out_features << " K " << s.in_features;
}

// One of the products: x w^T + bias, dy w, or dy^T x.
template <typename TIn, typename TOut>
struct Problem {
  using C = Compute<TIn>;

  // Gradients of weights are in the compute type: there is no other kind to run.
  static bool Exists(Which which) {
    return which != Which::kBackwardWeight || std::is_same_v<TOut, C>;
  }

  static Problem Random(Which which, const Sizes& s, bool with_bias) {
    Problem p(which,
              which == Which::kBackwardWeight || which == Which::kBackwardInput
                  ? Operand(s.tokens, s.out_features)
                  : Operand(s.tokens, s.in_features),
              Operand(which == Which::kBackwardWeight ? s.tokens : s.out_features, s.in_features));
    Fill(p.left, 1);
    Fill(p.right, 2);
    if (with_bias && which == Which::kForward) {
      for (std::int64_t j = 0; j < s.out_features; ++j) p.bias.push_back(C(0.37f) * (j % 5) - 1);
    }
    return p;
  }
  Problem(Which which, TestMatrix<TIn> left, TestMatrix<TIn> right)
      : which(which), left(std::move(left)), right(std::move(right)) {}

  // A matrix of inputs.
  static TestMatrix<TIn> Operand(std::int64_t rows, std::int64_t width) {
    return TestMatrix<TIn>(rows, width, Layout::kStrided);
  }
  TestMatrix<TOut> Output() const {
    return TestMatrix<TOut>(which == Which::kBackwardWeight ? left.width() : left.rows(),
                            which == Which::kForward ? right.rows() : right.width(),
                            Layout::kStrided);
  }

  TestMatrix<TOut> Run(GemmBackend backend, ThreadPool& pool) const {
    TestMatrix<TOut> out = Output();
    if (which == Which::kForward) {
      LinearForward<TIn, TOut>(backend, left.view(), right.view(), bias, out.span(), pool);
    } else if (which == Which::kBackwardInput) {
      LinearBackwardInput<TIn, TOut>(backend, left.view(), right.view(), out.span(), pool);
    } else if constexpr (std::is_same_v<TOut, C>) {
      LinearBackwardWeight<TIn>(backend, left.view(), right.view(), out.span(), pool);
    }
    out.ExpectGapsUntouched();
    return out;
  }

  // The p-th term of output element (i, j): its two factors.
  std::pair<C, C> Term(std::int64_t i, std::int64_t j, std::int64_t p) const {
    return {Widen(which == Which::kBackwardWeight ? left.at(p, i) : left.at(i, p)),
            Widen(which == Which::kForward ? right.at(j, p) : right.at(p, j))};
  }
  std::int64_t terms() const {
    return which == Which::kBackwardWeight ? left.rows() : left.width();
  }

  // The contract, as one would read it aloud.
  TestMatrix<TOut> TripleLoop() const {
    TestMatrix<TOut> out = Output();
    for (std::int64_t i = 0; i < out.rows(); ++i) {
      for (std::int64_t j = 0; j < out.width(); ++j) {
        C sum = 0;
        for (std::int64_t p = 0; p < terms(); ++p) {
          const auto [x, y] = Term(i, j, p);
          sum = std::fma(x, y, sum);
        }
        out.at(i, j) = Narrow<TOut>(bias.empty() ? sum : sum + bias[j]);
      }
    }
    return out;
  }

  Which which;
  TestMatrix<TIn> left, right;  // x, w; dy, w; or dy, x
  std::vector<C> bias;          // of the forward product, or empty
};

template <typename T>
void ExpectSameBits(const TestMatrix<T>& actual, const TestMatrix<T>& expected, Which which,
                    const Sizes& s) {
  std::ostringstream what;
  what << "product " << static_cast<int>(which) << " of " << s;
  ExpectSameBits(actual.view(), expected.view(), what.str());
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_
