// The specification of Newton-Schulz: docs/numerics.md, "Newton-Schulz", line by line. Serial and
// obvious; when the fast path disagrees with it, the fast path is wrong.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/status_macros.h"
#include "kernels/newton_schulz/block_view.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/newton_schulz/validate.h"

namespace headwise {
namespace {

constexpr std::int64_t kChunkColumns = 256;

struct Matrix {
  std::int64_t rows, cols;
  std::vector<float> elements = std::vector<float>(rows * cols);

  float& operator()(std::int64_t i, std::int64_t j) { return elements[i * cols + j]; }
  float operator()(std::int64_t i, std::int64_t j) const { return elements[i * cols + j]; }
};

// p[2i] + p[2i+1] until one is left, after padding with +0 to a power of two.
float AdjacentPairTree(std::vector<float> p) {
  p.resize(std::bit_ceil(p.size()), 0.0f);
  while (p.size() > 1) {
    for (std::size_t i = 0; i < p.size() / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    p.resize(p.size() / 2);
  }
  return p[0];
}

// Calls f for j <= i and mirrors.
template <typename F>
Matrix Symmetric(std::int64_t d, const F& f) {
  Matrix m{d, d};
  for (std::int64_t i = 0; i < d; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) m(i, j) = m(j, i) = f(i, j);
  }
  return m;
}

// (A B)[i][j], a serial chain.
float Dot(const Matrix& a, const Matrix& b, std::int64_t i, std::int64_t j) {
  float sum = 0.0f;
  for (std::int64_t k = 0; k < a.cols; ++k) sum = std::fma(a(i, k), b(k, j), sum);
  return sum;
}

Matrix Gram(const Matrix& x) {
  return Symmetric(x.rows, [&](std::int64_t i, std::int64_t j) {
    std::vector<float> partials;
    for (std::int64_t begin = 0; begin < x.cols; begin += kChunkColumns) {
      float sum = 0.0f;
      for (std::int64_t c = begin; c < std::min(begin + kChunkColumns, x.cols); ++c) {
        sum = std::fma(x(i, c), x(j, c), sum);
      }
      partials.push_back(sum);
    }
    return AdjacentPairTree(partials);
  });
}

float Trace(const Matrix& g) {
  std::vector<float> diagonal;
  for (std::int64_t i = 0; i < g.rows; ++i) diagonal.push_back(g(i, i));
  return AdjacentPairTree(diagonal);
}

// X <- (Q s) X.
void Apply(const Matrix& q, float s, Matrix& x) {
  const Matrix qs = Symmetric(q.rows, [&](auto i, auto j) { return q(i, j) * s; });
  const Matrix old = x;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t c = 0; c < x.cols; ++c) x(i, c) = Dot(qs, old, i, c);
  }
}

// Brings the largest magnitude, mu > 0, into [1, 2) if it is far from it.
void Scale(float mu, Matrix& x) {
  if (0x1p-40f <= mu && mu < 0x1p40f) return;
  const int exponent = -std::ilogb(mu);       // up to 149 for subnormal blocks, so
  const int first = std::min(exponent, 127);  // two factors, each of them a float
  for (float& v : x.elements) v = v * std::ldexp(1.0f, first) * std::ldexp(1.0f, exponent - first);
}

// X [d, n], d <= n, becomes its orthogonal factor.
void Orthogonalize(const NewtonSchulzCoefficients& set, Matrix& x) {
  const std::int64_t d = x.rows;
  float mu = 0.0f;
  for (const float v : x.elements) mu = std::max(mu, std::abs(v));
  if (mu == 0.0f) {
    std::fill(x.elements.begin(), x.elements.end(), 0.0f);
    return;
  }
  Scale(mu, x);

  Matrix r = Gram(x);
  const float t = Trace(r);
  for (float& v : r.elements) v = v / t;
  float s = static_cast<float>(1.0 / std::sqrt(static_cast<double>(t)));

  Matrix q{d, d};
  bool segment_begins = true;
  for (std::size_t n = 0; n < set.steps.size(); ++n) {
    const float a = set.steps[n].a, b = set.steps[n].b, c = set.steps[n].c;
    const bool last = n + 1 == set.steps.size();
    const bool restart =
        std::count(set.restarts_after.begin(), set.restarts_after.end(), n + 1) > 0;

    const Matrix z =
        Symmetric(d, [&](auto i, auto j) { return std::fma(c, Dot(r, r, i, j), b * r(i, j)); });
    if (segment_begins) {
      q = z;
      for (std::int64_t i = 0; i < d; ++i) q(i, i) = z(i, i) + a;
    } else {
      q = Symmetric(d, [&](auto i, auto j) { return std::fma(a, q(i, j), Dot(z, q, i, j)); });
    }
    if (restart) {
      Apply(q, s, x);
      s = 1.0f;
      r = Gram(x);
    } else if (!last) {
      const Matrix w =
          Symmetric(d, [&](auto i, auto j) { return std::fma(a, r(i, j), Dot(z, r, i, j)); });
      r = Symmetric(d, [&](auto i, auto j) { return std::fma(a, w(i, j), Dot(w, z, i, j)); });
    }
    segment_begins = restart;
  }
  Apply(q, s, x);
}

}  // namespace

absl::Status NewtonSchulzReference(const NewtonSchulzCoefficients& coefficients,
                                   absl::Span<const NewtonSchulzProblem> problems) {
  HW_RETURN_IF_ERROR(newton_schulz::CheckArguments(coefficients, problems));
  for (const NewtonSchulzProblem& problem : problems) {
    for (const HeadBlock& block : problem.blocks->blocks()) {
      const newton_schulz::BlockView view(block, problem.blocks->axis(), problem.input.rows,
                                          problem.input.width);
      const bool transpose =
          view.rows() > view.cols() || (view.rows() == view.cols() && problem.transposed_storage);
      Matrix x{std::min(view.rows(), view.cols()), std::max(view.rows(), view.cols())};
      // Calls f(element of X, its row and column in the problem's matrices).
      const auto for_each_element = [&](const auto& f) {
        for (std::int64_t i = 0; i < view.rows(); ++i) {
          for (std::int64_t j = 0; j < view.cols(); ++j) {
            view.ForEachRun(i, j, 1, [&](auto row, auto col, auto...) {
              f(transpose ? x(j, i) : x(i, j), row, col);
            });
          }
        }
      };
      for_each_element([&](float& e, auto row, auto col) { e = problem.input.row(row)[col]; });
      Orthogonalize(coefficients, x);
      for_each_element([&](float& e, auto row, auto col) { problem.output.row(row)[col] = e; });
    }
  }
  return absl::OkStatus();
}

}  // namespace headwise
