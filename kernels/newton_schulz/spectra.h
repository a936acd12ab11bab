// For tests: the seven spectra on which Newton-Schulz is tried, from harmless to hostile.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_SPECTRA_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_SPECTRA_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/newton_schulz/double_standard_form.h"

namespace headwise {

// A matrix of rows x cols, of another kind for each function.
using MakeSpectrum = DoubleMatrix (*)(std::int64_t rows, std::int64_t cols, std::uint64_t seed);

inline DoubleMatrix Gaussian(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  return GaussianMatrix(rows, cols, seed);
}

// From `smallest` to 1, equal ratios.
inline std::vector<double> LogSpaced(std::int64_t count, double smallest) {
  std::vector<double> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = std::pow(smallest, static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return values;
}

// Singular values from 10^-kDecades to 1.
template <int kDecades>
DoubleMatrix LogSpectrum(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  return MatrixWithSingularValues(rows, cols,
                                  LogSpaced(std::min(rows, cols), std::pow(10.0, -kDecades)), seed);
}

inline DoubleMatrix HalfRank(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  std::vector<double> values(std::min(rows, cols), 0.0);
  for (std::size_t i = 0; i < values.size() / 2; ++i) values[i] = 1.0;
  return MatrixWithSingularValues(rows, cols, values, seed);
}

// A thousand times the others.
inline DoubleMatrix OneSpike(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  std::vector<double> values(std::min(rows, cols), 1e-3);
  values[0] = 1.0;
  return MatrixWithSingularValues(rows, cols, values, seed);
}

inline constexpr MakeSpectrum kSevenSpectra[] = {
    Gaussian, LogSpectrum<2>, LogSpectrum<4>, LogSpectrum<6>, LogSpectrum<8>, HalfRank, OneSpike,
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_SPECTRA_H_
