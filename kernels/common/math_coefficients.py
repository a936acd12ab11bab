#!/usr/bin/env python3
"""Prints the polynomial coefficients of math.h. Needs mpmath; not part of the build.

Each polynomial is the minimax one for the relative error of the function it serves, found by a
Remez exchange in 60 digits. Coefficients are rounded to fp32 one at a time, lowest degree first;
after each the rest are fitted again, so that they make up for the rounding.
"""
from mpmath import cos, exp, frexp, log, lu_solve, matrix, mp, mpf, nint, pi, sqrt, tanh

mp.dps = 60


def round_to_fp32(x):
    mantissa, exponent = frexp(x)
    return nint(mantissa * 2**24) * mpf(2) ** (exponent - 24)


def points(low, high, count):
    """Evenly spaced, leaving out zero, where the weights vanish."""
    grid = [low + (high - low) * mpf(i) / count for i in range(count + 1)]
    return [x for x in grid if abs(x) > (high - low) / 10000]


def remez(target, weight, powers, low, high):
    """Coefficients c minimising max |weight * (sum c[j] x^powers[j] - target)| over [low, high]."""
    n = len(powers)
    nodes = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * (n - i) + 1) / (2 * (n + 1)))
             for i in range(n + 1)]
    nodes = [x if abs(x) > (high - low) / 50 else (high - low) / 50 for x in nodes]
    for _ in range(8):
        system, right = matrix(n + 1, n + 1), matrix(n + 1, 1)
        for i, x in enumerate(nodes):
            for j, power in enumerate(powers):
                system[i, j] = x**power
            system[i, n] = (-1) ** i / weight(x)
            right[i] = target(x)
        solution = lu_solve(system, right)
        c = [solution[j] for j in range(n)]
        extrema = []  # of the error, one for each run of equal signs
        for x in points(low, high, 1000):
            e = weight(x) * (sum(cj * x**power for cj, power in zip(c, powers)) - target(x))
            if extrema and (e > 0) == (extrema[-1][1] > 0):
                if abs(e) > abs(extrema[-1][1]):
                    extrema[-1] = (x, e)
            else:
                extrema.append((x, e))
        while len(extrema) > n + 1:
            extrema.pop(0 if abs(extrema[0][1]) < abs(extrema[-1][1]) else -1)
        if len(extrema) < n + 1 or [x for x, _ in extrema] == nodes:
            break
        nodes = [x for x, _ in extrema]
    return c


def fit(name, target, weight, count, low, high):
    rounded = []

    def rest(x):
        return target(x) - sum(c * x**k for k, c in enumerate(rounded))

    while len(rounded) < count:
        powers = range(len(rounded), count)
        c = remez(lambda x: rest(x), weight, powers, low, high)
        rounded.append(round_to_fp32(c[0]))
    error = max(abs(weight(x) * rest(x)) for x in points(low, high, 3000))
    print(f"{name}: relative error 2^{float(log(error, 2)):.2f}")
    for c in rounded:
        print(f"  {float(c).hex()}")


half_ln2 = log(mpf(2)) / 2 * mpf("1.0005")
fit("Q: exp(r) = 1 + r + r^2 Q(r)", lambda r: (exp(r) - 1 - r) / r**2,
    lambda r: r**2 / exp(r), 5, -half_ln2, half_ln2)
fit("L: log(1+f) = f - f^2/2 + f^3 L(f)", lambda f: (log(1 + f) - f + f * f / 2) / f**3,
    lambda f: f**3 / log(1 + f), 9,
    (sqrt(mpf(1) / 2) - 1) * mpf("1.0001"), (sqrt(mpf(2)) - 1) * mpf("1.0001"))
fit("T: tanh(a) = a + a^3 T(a^2)", lambda s: (tanh(sqrt(s)) - sqrt(s)) / sqrt(s) ** 3,
    lambda s: sqrt(s) ** 3 / tanh(sqrt(s)), 5, mpf(10) ** -12, mpf("0.625") ** 2)
ln2 = log(mpf(2))
high = round_to_fp32(ln2)
print(f"ln2 high {float(high).hex()} low {float(round_to_fp32(ln2 - high)).hex()}"
      f" log2e {float(round_to_fp32(1 / ln2)).hex()}")
