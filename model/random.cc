#include "model/random.h"

#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "core/base/split_mix.h"

namespace headwise {
namespace {

// The natural logarithm of a normal number in (0, 1): x = m 2^e with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 atanh((m - 1) / (m + 1)) by its series, whose terms here fall by 34 times each.
double Log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3fe0000000000000);  // [1/2, 1)
  if (m < kSqrtHalf) {
    m *= 2;
    --e;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return e * kLn2 + 2 * s * sum;
}

// numerator(x) / denominator(x), coefficients from the constant term on.
double Rational(const double (&numerator)[8], const double (&denominator)[8], double x) {
  double n = 0, d = 0;
  for (int i = 7; i >= 0; --i) {
    n = n * x + numerator[i];
    d = d * x + denominator[i];
  }
  return n / d;
}

}  // namespace

std::uint64_t RandomKey(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return SplitMixScramble(hash + SplitMixScramble(seed + kSplitMixIncrement));
}

double Uniform(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t bits = SplitMixScramble(key + (index + 1) * kSplitMixIncrement) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

double InverseNormalCdf(double p) {
  HW_CHECK(p > 0 && p < 1) << "p = " << p;
  // The three regions of AS 241 (PPND16).
  static constexpr double kCentre[2][8] = {
      {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
       1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
       3.3430575583588128105e+4, 2.5090809287301226727e+3},
      {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
       2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
       5.2264952788528545610e+3}};
  static constexpr double kMiddle[2][8] = {
      {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
       3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
       2.27238449892691845833e-2, 7.74545014278341407640e-4},
      {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
       1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
       1.05075007164441684324e-9}};
  static constexpr double kTail[2][8] = {
      {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
       2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
       2.71155556874348757815e-5, 2.01033439929228813265e-7},
      {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
       7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
       2.04426310338993978564e-15}};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) return q * Rational(kCentre[0], kCentre[1], 0.180625 - q * q);
  const double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? Rational(kMiddle[0], kMiddle[1], r - 1.6) : Rational(kTail[0], kTail[1], r - 5);
  return q < 0 ? -x : x;
}

double Normal(std::uint64_t key, std::uint64_t index) {
  return InverseNormalCdf(Uniform(key, index));
}

double TruncatedNormal(std::uint64_t key, std::uint64_t index) {
  constexpr double kBelow = 1.3498980316300946e-3;  // the probability of a value below -3
  return InverseNormalCdf(kBelow + Uniform(key, index) * (1 - 2 * kBelow));
}

}  // namespace headwise
