// For tests: matrices with chosen singular values, and Newton-Schulz in double by the standard
// form, which shares nothing with the Gram form but the polynomial. Eigen stays behind this header.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_DOUBLE_STANDARD_FORM_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_DOUBLE_STANDARD_FORM_H_

#include <cstdint>
#include <vector>

#include "kernels/newton_schulz/coefficients.h"

namespace headwise {

// Rows x cols, row-major.
struct DoubleMatrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> elements;

  double at(std::int64_t i, std::int64_t j) const { return elements[i * cols + j]; }
  double& at(std::int64_t i, std::int64_t j) { return elements[i * cols + j]; }
};

// Independent standard normal elements.
DoubleMatrix GaussianMatrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed);

// U diag(values) V^T with random orthonormal U and V; values.size() = min(rows, cols).
DoubleMatrix MatrixWithSingularValues(std::int64_t rows, std::int64_t cols,
                                      const std::vector<double>& values, std::uint64_t seed);

// X / |X|, then X <- (a I + b A + c A A) X, A = X X^T, for every step.
DoubleMatrix StandardForm(const NewtonSchulzCoefficients& coefficients, const DoubleMatrix& x);

// The same by another route: U p(S / |X|) V^T of X = U S V^T, where p applies the steps to each
// singular value. No product of matrices but the last two.
DoubleMatrix PolynomialOfSingularValues(const NewtonSchulzCoefficients& coefficients,
                                        const DoubleMatrix& x);

// min(rows, cols) of them, the largest first.
std::vector<double> SingularValues(const DoubleMatrix& m);

// |a - b| / |b|, Frobenius.
double RelativeDifference(const DoubleMatrix& a, const DoubleMatrix& b);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_DOUBLE_STANDARD_FORM_H_
