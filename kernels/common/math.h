// math.h: exp, log, tanh and sigmoid with the same bits on every machine.
//
//   float y = Exp(x);           // one value
//   F16 v = Exp(LoadWiden(p));  // sixteen: lane i holds exactly Exp(p[i])
//
// libm's functions differ between systems and versions, and vector libraries differ from them;
// these are the project's own, and every fp32 kernel uses only these. Each is the sequence of
// operations below: fp32 fma, mul, add, sub, div, comparisons, selects and integer operations,
// every one rounded to nearest even, nothing contracted, no flush to zero. That sequence is the
// contract: a CUDA path writes the same one with __fmaf_rn, __fmul_rn, __fadd_rn, __fdiv_rn and
// returns the same bits (any NaN equals any NaN).
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

inline constexpr float kLn2High = 0x1.62e430p-1f;
inline constexpr float kLn2Low = -0x1.05c610p-29f;

// Horner's rule, coefficients from the highest degree down.
template <typename V, typename... C>
[[gnu::always_inline]] inline V Horner(V x, float highest, C... lower) {
  V p = highest;
  ((p = Fma(p, x, V(lower))), ...);
  return p;
}

// V is float or F16.
template <typename V>
[[gnu::always_inline]] inline V ExpImpl(V x) {
  constexpr float kRound = 0x1.8p23f;  // added and subtracted: rounds to an integer
  x = Min(V(89.0f), x);
  x = Max(V(-105.0f), x);
  const V t = Fma(x, V(0x1.715476p0f), V(kRound));
  const V n = t - kRound;
  V r = Fma(n, V(-kLn2High), x);
  r = Fma(n, V(-kLn2Low), r);
  const V q =
      Horner(r, 0x1.6ac36cp-10f, 0x1.123da6p-7f, 0x1.555858p-5f, 0x1.55548cp-3f, 0x1.fffffcp-2f);
  const V p = Fma(r * r, q, r) + 1.0f;
  // Two factors, as 2^n itself may be out of range; the first product is exact.
  const auto i = ToBits(t) - ToBits(kRound);
  const auto a = i >> 1;
  return (p * FromBits((a + 127) << 23)) * FromBits((i - a + 127) << 23);
}

template <typename V>
[[gnu::always_inline]] inline V LogImpl(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kRound = 0x1.8p23f;
  const auto subnormal = x < 0x1p-126f;
  const V scaled = Select(subnormal, x * 0x1p23f, x);
  const auto i = (ToBits(scaled) - ToBits(0x1.6a09e6p-1f)) >> 23;
  const V f = FromBits(ToBits(scaled) - (i << 23)) - 1.0f;
  const V e = FromBits(i + ToBits(kRound)) - Select(subnormal, V(kRound + 23.0f), V(kRound));
  const V s = f * f;
  V y = (s * f) * Horner(f, 0x1.b36250p-5f, -0x1.bea62ep-4f, 0x1.f01edcp-4f, -0x1.01114ep-3f,
                         0x1.23024ep-3f, -0x1.552e42p-3f, 0x1.99a544p-3f, -0x1.000072p-2f,
                         0x1.555548p-2f);
  y = Fma(e, V(kLn2Low), y);
  y = Fma(V(-0.5f), s, y);
  y = Fma(e, V(kLn2High), f + y);
  y = Select(x < kInfinity, y, x);
  const V nowhere = Select(x == 0.0f, V(-kInfinity), V(std::numeric_limits<float>::quiet_NaN()));
  return Select(x > 0.0f, y, nowhere);
}

template <typename V>
[[gnu::always_inline]] inline V SigmoidImpl(V x) {
  const V z = ExpImpl(-Abs(x));
  return Select(x < 0.0f, z, V(1.0f)) / (z + 1.0f);
}

template <typename V>
[[gnu::always_inline]] inline V TanhImpl(V x) {
  const V a = Abs(x);
  const V s = a * a;
  const V t =
      Horner(s, -0x1.750ce4p-8f, 0x1.51f8cep-6f, -0x1.b835a4p-5f, 0x1.1106f6p-3f, -0x1.555532p-2f);
  const V near = Fma(s * t, a, a);
  const V far = V(1.0f) - V(2.0f) / (ExpImpl(a + a) + 1.0f);
  return CopySign(Select(a < 0.625f, near, far), x);
}

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
    const V z = Exp(-Abs(x));
    const V sum = z + one;
    const auto negative = x < V(LaneOf<V>(0));
    value = Select(negative, z, one) / sum;
    complement = Select(negative, one, z) / sum;
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
