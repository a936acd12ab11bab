#include "kernels/newton_schulz/double_standard_form.h"

#include <Eigen/Dense>
#include <algorithm>
#include <random>

#include "core/base/check.h"

namespace headwise {
namespace {

using Dense = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Dense ToEigen(const DoubleMatrix& m) {
  return Eigen::Map<const Dense>(m.elements.data(), m.rows, m.cols);
}

DoubleMatrix FromEigen(const Dense& m) {
  return {m.rows(), m.cols(), std::vector<double>(m.data(), m.data() + m.size())};
}

// Orthonormal columns.
Dense Orthonormal(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  const Dense gaussian = ToEigen(GaussianMatrix(rows, cols, seed));
  return Dense(Eigen::HouseholderQR<Dense>(gaussian).householderQ() * Dense::Identity(rows, cols));
}

}  // namespace

DoubleMatrix GaussianMatrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  DoubleMatrix m{rows, cols, std::vector<double>(rows * cols)};
  for (double& v : m.elements) v = normal(random);
  return m;
}

DoubleMatrix MatrixWithSingularValues(std::int64_t rows, std::int64_t cols,
                                      const std::vector<double>& values, std::uint64_t seed) {
  const std::int64_t d = std::min(rows, cols);
  HW_CHECK_EQ(static_cast<std::int64_t>(values.size()), d);
  const Eigen::VectorXd s = Eigen::Map<const Eigen::VectorXd>(values.data(), d);
  return FromEigen(Orthonormal(rows, d, seed) * s.asDiagonal() *
                   Orthonormal(cols, d, seed + 1).transpose());
}

DoubleMatrix StandardForm(const NewtonSchulzCoefficients& coefficients, const DoubleMatrix& m) {
  Dense x = ToEigen(m);
  x /= x.norm();
  for (const QuinticStep& step : coefficients.steps) {
    const Dense a = x * x.transpose();
    const Dense polynomial = double{step.b} * a + double{step.c} * a * a;
    x = (double{step.a} * x + polynomial * x).eval();
  }
  return FromEigen(x);
}

DoubleMatrix PolynomialOfSingularValues(const NewtonSchulzCoefficients& coefficients,
                                        const DoubleMatrix& m) {
  const Dense x = ToEigen(m);
  const Eigen::BDCSVD<Dense> svd(x, Eigen::ComputeThinU | Eigen::ComputeThinV);
  Eigen::VectorXd s = svd.singularValues() / svd.singularValues().norm();
  for (double& value : s) {
    for (const QuinticStep& step : coefficients.steps) {
      const double square = value * value;
      value *= double{step.a} + square * (double{step.b} + square * double{step.c});
    }
  }
  return FromEigen(svd.matrixU() * s.asDiagonal() * svd.matrixV().transpose());
}

std::vector<double> SingularValues(const DoubleMatrix& m) {
  const Eigen::BDCSVD<Dense> svd(ToEigen(m));
  const Eigen::VectorXd& s = svd.singularValues();
  return {s.data(), s.data() + s.size()};
}

double RelativeDifference(const DoubleMatrix& a, const DoubleMatrix& b) {
  return (ToEigen(a) - ToEigen(b)).norm() / ToEigen(b).norm();
}

}  // namespace headwise
