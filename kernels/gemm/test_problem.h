// Random products for the tests of gemm.h, and the plain triple loop they are measured against.
#ifndef HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_
#define HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {

// A matrix in rows of width + 3. Between the rows lies NaN, which no product may read into a
// result, and must leave as it is.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t width)
      : rows_(rows),
        width_(width),
        data_(rows * stride(), Narrow<T>(std::numeric_limits<Compute<T>>::quiet_NaN())) {}

  // Uniform in [-1, 1).
  static Matrix Random(std::int64_t rows, std::int64_t width, int seed) {
    Matrix m(rows, width);
    std::mt19937 generator(seed);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        m(i, j) = Narrow<T>(static_cast<float>(generator() >> 8) * 0x1p-23f - 1);
      }
    }
    return m;
  }

  T& operator()(std::int64_t i, std::int64_t j) { return data_[i * stride() + j]; }
  const T& operator()(std::int64_t i, std::int64_t j) const { return data_[i * stride() + j]; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return width_ + kGap; }
  RowSpan<T> span() { return RowSpan<T>(data_.data(), rows_, width_, stride()); }
  RowSpan<const T> span() const { return RowSpan<const T>(data_.data(), rows_, width_, stride()); }

  bool GapsUntouched() const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = width_; j < stride(); ++j) {
        if (!std::isnan(Widen((*this)(i, j)))) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGap = 3;

  std::int64_t rows_ = 0, width_ = 0;
  std::vector<T> data_;
};

// Equal bits, where any NaN equals any NaN.
template <typename T>
bool SameBits(T a, T b) {
  const auto x = Widen(a), y = Widen(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return x == y && std::signbit(x) == std::signbit(y);
}

template <typename T>
testing::AssertionResult SameBits(const Matrix<T>& actual, const Matrix<T>& expected) {
  if (actual.rows() != expected.rows() || actual.width() != expected.width()) {
    return testing::AssertionFailure() << "shapes differ";
  }
  for (std::int64_t i = 0; i < expected.rows(); ++i) {
    for (std::int64_t j = 0; j < expected.width(); ++j) {
      if (SameBits(actual(i, j), expected(i, j))) continue;
      return testing::AssertionFailure()
             << "element " << i << ", " << j << " of " << expected.rows() << " x "
             << expected.width() << " is " << Widen(actual(i, j)) << ", not "
             << Widen(expected(i, j));
    }
  }
  if (!actual.GapsUntouched()) return testing::AssertionFailure() << "written between the rows";
  return testing::AssertionSuccess();
}

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
    Problem p;
    p.which = which;
    p.left =
        Matrix<TIn>::Random(s.tokens, which == Which::kForward ? s.in_features : s.out_features, 1);
    p.right = Matrix<TIn>::Random(which == Which::kBackwardWeight ? s.tokens : s.out_features,
                                  s.in_features, 2);
    if (with_bias && which == Which::kForward) {
      for (std::int64_t j = 0; j < s.out_features; ++j) p.bias.push_back(C(0.37f) * (j % 5) - 1);
    }
    return p;
  }

  Matrix<TOut> Run(GemmBackend backend, ThreadPool& pool) const {
    Matrix<TOut> out;
    if (which == Which::kForward) {
      out = Matrix<TOut>(left.rows(), right.rows());
      LinearForward<TIn, TOut>(backend, left.span(), right.span(), bias, out.span(), pool);
    } else if (which == Which::kBackwardInput) {
      out = Matrix<TOut>(left.rows(), right.width());
      LinearBackwardInput<TIn, TOut>(backend, left.span(), right.span(), out.span(), pool);
    } else if constexpr (std::is_same_v<TOut, C>) {
      out = Matrix<TOut>(left.width(), right.width());
      LinearBackwardWeight<TIn>(backend, left.span(), right.span(), out.span(), pool);
    }
    return out;
  }

  // Calls f(i, j, term), where term(p) is the pair of factors of the p-th term of element (i, j).
  template <typename F>
  void ForEachElement(F f) const {
    const bool weight = which == Which::kBackwardWeight, forward = which == Which::kForward;
    const std::int64_t rows = weight ? left.width() : left.rows();
    const std::int64_t cols = forward ? right.rows() : right.width();
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        f(i, j, [&, i, j](std::int64_t p) {
          return std::pair(Widen(weight ? left(p, i) : left(i, p)),
                           Widen(forward ? right(j, p) : right(p, j)));
        });
      }
    }
  }
  std::int64_t terms() const {
    return which == Which::kBackwardWeight ? left.rows() : left.width();
  }

  // The contract, as one would read it aloud.
  Matrix<TOut> TripleLoop() const {
    const bool weight = which == Which::kBackwardWeight, forward = which == Which::kForward;
    Matrix<TOut> out(weight ? left.width() : left.rows(), forward ? right.rows() : right.width());
    ForEachElement([&](std::int64_t i, std::int64_t j, auto term) {
      C sum = 0;
      for (std::int64_t p = 0; p < terms(); ++p) {
        const auto [x, y] = term(p);
        sum = std::fma(x, y, sum);
      }
      out(i, j) = Narrow<TOut>(bias.empty() ? sum : sum + bias[j]);
    });
    return out;
  }

  Which which = Which::kForward;
  Matrix<TIn> left, right;  // x, w; dy, w; or dy, x
  std::vector<C> bias;      // of the forward product, or empty
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GEMM_TEST_PROBLEM_H_
