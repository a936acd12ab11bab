// statistics: what is said of samples that were measured.
//
//   const Summary time = Summarize(seconds);
//   const Summary ratio = Summarize(Ratios(unfused_seconds, fused_seconds));
//
// median is what a table shows; spread is the standard deviation of the samples, with n - 1, over
// their mean: 0.01 says that one sample differs from another by about a percent.
#ifndef HEADWISE_MODEL_BENCH_STATISTICS_H_
#define HEADWISE_MODEL_BENCH_STATISTICS_H_

#include <vector>

#include "absl/types/span.h"

namespace headwise {

struct Summary {
  int samples = 0;
  double median = 0;  // of an even number: the mean of the two in the middle
  double mean = 0;
  double min = 0, max = 0;
  double spread = 0;  // of one sample, or of samples with a mean of 0: 0
};

// All zeros without samples.
Summary Summarize(absl::Span<const double> samples);

// a[i] / b[i] of contenders that took turns: what disturbs a round disturbs both. Equal lengths
// (checked).
std::vector<double> Ratios(absl::Span<const double> a, absl::Span<const double> b);

// work / seconds[i]: tokens, bytes or operations a second.
std::vector<double> Rates(double work, absl::Span<const double> seconds);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_STATISTICS_H_
