#include "model/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/base/check.h"

namespace headwise {

Summary Summarize(absl::Span<const double> samples) {
  Summary s;
  if (samples.empty()) return s;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  s.samples = static_cast<int>(n);
  s.min = sorted.front();
  s.max = sorted.back();
  s.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
  s.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(n);
  if (n < 2 || s.mean == 0) return s;
  double squares = 0;
  for (const double x : sorted) squares += (x - s.mean) * (x - s.mean);
  s.spread = std::sqrt(squares / static_cast<double>(n - 1)) / std::abs(s.mean);
  return s;
}

std::vector<double> Ratios(absl::Span<const double> a, absl::Span<const double> b) {
  HW_CHECK_EQ(a.size(), b.size());
  std::vector<double> ratios(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) ratios[i] = a[i] / b[i];
  return ratios;
}

std::vector<double> Rates(double work, absl::Span<const double> seconds) {
  std::vector<double> rates;
  rates.reserve(seconds.size());
  for (const double s : seconds) rates.push_back(work / s);
  return rates;
}

}  // namespace headwise
