// math.h: exp, log, tanh and sigmoid with the same bits on every machine.
//
//   float y = Exp(x);           // one value
//   F16 v = Exp(LoadWiden(p));  // sixteen: lane i holds exactly Exp(p[i])
//
// libm's functions differ between systems and versions, and vector libraries differ from them;
// these are the project's own, and every fp32 kernel uses only these. Each is the sequence of
// operations below: fp32 fma, mul, add, sub, div, comparisons, selects and integer operations,
// every one rounded to nearest even, nothing contracted, no flush to zero. That sequence is the
// contract. Its text is math_steps.inc, which device code includes too (cuda/math.cuh): there every
// operation is __fmaf_rn, __fmul_rn, __fadd_rn or __fdiv_rn, and the bits are the same (any NaN
// equals any NaN).
//
// P[c0, c1, ...](x) is Horner's rule, one fma for each coefficient but the last:
//   p = ck; p = fma(p, x, c(k-1)); ...; p = fma(p, x, c0).
//
//   Exp(x)
//     x = 89 if 89 < x, x = -105 if -105 > x           NaN stays
//     t = fma(x, log2e, 1.5 * 2^23)
//     n = t - 1.5 * 2^23                               x / ln 2 to the nearest integer
//     r = fma(n, -ln2_high, x)
//     r = fma(n, -ln2_low, r)
//     p = fma(r * r, Q(r), r) + 1
//     i = bits(t) - bits(1.5 * 2^23), a = i >> 1       i = n as an integer
//     (p * 2^a) * 2^(i - a)
//
//   Log(x)
//     u = x * 2^23, k = 23 if x < 2^-126; else u = x, k = 0
//     i = (bits(u) - bits(sqrt 1/2)) >> 23             arithmetic shift
//     f = float(bits(u) - (i << 23)) - 1               in [sqrt 1/2 - 1, sqrt 2 - 1]
//     e = i - k as a float                             exact
//     s = f * f
//     y = (s * f) * L(f)
//     y = fma(e, ln2_low, y)
//     y = fma(-1/2, s, y)
//     fma(e, ln2_high, f + y); but +inf for +inf, -inf for zeros, NaN below and for NaN
//
//   Sigmoid(x)
//     z = Exp(-|x|)
//     (z if x < 0, else 1) / (z + 1)
//
//   SigmoidPair(x)
//     Sigmoid(x) and Sigmoid(-x), which is 1 - Sigmoid(x), from one exponential
//
//   Tanh(x)
//     a = |x|
//     s = a * a, y = fma(s * T(s), a, a)               if a < 0.625
//     y = 1 - 2 / (Exp(a + a) + 1)                     else
//     y with the sign of x
//
// Q, L and T are minimax for the relative error of the whole function on its interval, found by a
// Remez exchange in 60 digits, rounded to fp32 one coefficient at a time from the lowest degree,
// the rest refitted each time (math_coefficients.py prints them).
//
// Largest errors in units of the last place of the exact result, over every 11th float (the tests
// hold them to it): Exp 1.01, Log 0.85, Sigmoid 2.36, Tanh 1.31. Edges:
//   Exp      overflow gives +inf; below the smallest normal, a subnormal rounded once; 0 from
//            -103.98 down. Exp(+-0) = 1.
//   Log      exact at 1; subnormal arguments are handled in full.
//   Sigmoid  1 - Sigmoid(x) is Sigmoid(-x), without cancellation. Tails reach subnormals and 0.
//   Tanh     odd, +-0 for +-0, relative accuracy down to the smallest subnormal.
//
// The overloads for double and D16 call std:: functions, lane by lane: for derivative checks, not
// part of the bitwise contract.
#ifndef HEADWISE_KERNELS_COMMON_MATH_H_
#define HEADWISE_KERNELS_COMMON_MATH_H_

#include <cmath>
#include <limits>

#include "kernels/common/simd.h"

namespace headwise {

// Bumped whenever some output bit of a function below changes.
inline constexpr int kMathContractVersion = 1;

namespace math_internal {

#define HW_MATH_STEP [[gnu::always_inline]] inline
#include "kernels/common/math_steps.inc"
#undef HW_MATH_STEP

// f for every lane.
template <typename F>
D16 EachLane(D16 x, F f) {
  double lane[kLanes];
  Store(lane, x);
  for (double& v : lane) v = f(v);
  return Load(lane);
}

}  // namespace math_internal

// e^x
inline float Exp(float x) { return math_internal::ExpImpl(x); }
inline double Exp(double x) { return std::exp(x); }
[[gnu::always_inline]] inline F16 Exp(F16 x) { return math_internal::ExpImpl(x); }
inline D16 Exp(D16 x) {
  return math_internal::EachLane(x, [](double v) { return Exp(v); });
}

// Natural logarithm.
inline float Log(float x) { return math_internal::LogImpl(x); }
inline double Log(double x) { return std::log(x); }
[[gnu::always_inline]] inline F16 Log(F16 x) { return math_internal::LogImpl(x); }
inline D16 Log(D16 x) {
  return math_internal::EachLane(x, [](double v) { return Log(v); });
}

// 1 / (1 + e^-x)
inline float Sigmoid(float x) { return math_internal::SigmoidImpl(x); }
inline double Sigmoid(double x) {
  const double z = std::exp(-std::abs(x));
  return (x < 0 ? z : 1.0) / (z + 1.0);
}
[[gnu::always_inline]] inline F16 Sigmoid(F16 x) { return math_internal::SigmoidImpl(x); }
inline D16 Sigmoid(D16 x) {
  return math_internal::EachLane(x, [](double v) { return Sigmoid(v); });
}

// {Sigmoid(x), Sigmoid(-x)}, the bits of both. V is float, F16, double or D16.
template <typename V>
struct SigmoidPair {
  V value;
  V complement;

  [[gnu::always_inline]] explicit SigmoidPair(V x) {
    const V one = LaneOf<V>(1);
    math_internal::SigmoidsFrom(Exp(-Abs(x)), x, V(LaneOf<V>(0)), one, value, complement);
  }
};

// Hyperbolic tangent.
inline float Tanh(float x) { return math_internal::TanhImpl(x); }
inline double Tanh(double x) { return std::tanh(x); }
[[gnu::always_inline]] inline F16 Tanh(F16 x) { return math_internal::TanhImpl(x); }
inline D16 Tanh(D16 x) {
  return math_internal::EachLane(x, [](double v) { return Tanh(v); });
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_MATH_H_
