#include "kernels/muon_step/double_step.h"

#include <algorithm>
#include <cmath>

namespace headwise {
namespace {

// q(x) of the steps [begin, end), X becoming q(X X^T) X; and its derivative.
struct Value {
  double value, derivative;
};
Value Polynomial(const NewtonSchulzCoefficients& set, int begin, int end, double x) {
  Value q = {1, 0}, r = {x, 1};  // of what X has been multiplied by, and of X X^T
  for (int i = begin; i < end; ++i) {
    const QuinticStep& step = set.steps[i];
    const double a = step.a, b = step.b, c = step.c;
    const double h = a + r.value * (b + r.value * c);
    const double dh = (b + 2 * c * r.value) * r.derivative;
    q = {q.value * h, q.derivative * h + q.value * dh};
    r = {r.value * h * h, r.derivative * h * h + 2 * r.value * h * dh};
  }
  return q;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// Of what is left of a segment, rest(R), multiplying Q X: its largest value; how much a change of R
// becomes in rest(R) Q X, at most, by divided differences at any two singular values.
struct Rest {
  double largest = 0, of_r = 0;
};
Rest MakeRest(const NewtonSchulzCoefficients& set, int begin, int end, const std::vector<double>& r,
              const std::vector<double>& qx) {
  std::vector<Value> values(r.size());
  for (std::size_t i = 0; i < r.size(); ++i) values[i] = Polynomial(set, begin, end, r[i]);
  Rest rest;
  for (std::size_t i = 0; i < r.size(); ++i) {
    rest.largest = std::max(rest.largest, std::abs(values[i].value));
    for (std::size_t j = 0; j < r.size(); ++j) {
      const bool same = std::abs(r[i] - r[j]) <= 1e-6 * std::max(r[i], r[j]);
      const double slope =
          same ? values[i].derivative : (values[i].value - values[j].value) / (r[i] - r[j]);
      rest.of_r = std::max(rest.of_r, std::abs(slope * qx[j]));
    }
  }
  return rest;
}

}  // namespace

double ErrorFactor(const NewtonSchulzCoefficients& coefficients, std::vector<double> s) {
  std::vector<int> ends = coefficients.restarts_after;
  ends.push_back(static_cast<int>(coefficients.steps.size()));
  const double norm = Norm(s);
  for (double& v : s) v /= norm;
  double error = 0;
  int begin = 0;
  for (const int end : ends) {
    const std::size_t d = s.size();
    std::vector<double> r(d), q(d, 1), qx = s;  // of R, Q and Q X
    for (std::size_t i = 0; i < d; ++i) r[i] = s[i] * s[i];
    Rest rest = MakeRest(coefficients, begin, end, r, qx);
    // An error of X so far is multiplied by Q, and changes R.
    error *= rest.largest + 2 * Largest(s) * rest.of_r;
    error += rest.of_r * Norm(s) * Norm(s);
    for (int k = begin; k < end; ++k) {
      const double a = coefficients.steps[k].a, b = coefficients.steps[k].b,
                   c = coefficients.steps[k].c;
      std::vector<double> z(d), h(d);
      for (std::size_t i = 0; i < d; ++i) {
        z[i] = r[i] * (b + r[i] * c);
        h[i] = a + z[i];
      }
      const double of_z = Norm(r) * (std::abs(b) + Norm(r) * std::abs(c));
      const double of_q = Norm(q) * (std::abs(a) + Largest(z));
      const double of_r =
          2 * Largest(h) * (Norm(r) * (std::abs(a) + Largest(z)) + Largest(r) * of_z);
      const double z_in_qx = of_z * Largest(qx) + of_q * Largest(s);
      for (std::size_t i = 0; i < d; ++i) q[i] *= h[i], qx[i] *= h[i], r[i] *= h[i] * h[i];
      rest = MakeRest(coefficients, k + 1, end, r, qx);
      error += z_in_qx * rest.largest + of_r * rest.of_r;
    }
    error += Norm(q) * Norm(s);
    for (std::size_t i = 0; i < d; ++i) s[i] = std::abs(qx[i]);
    begin = end;
  }
  return error / Norm(s);
}

}  // namespace headwise
