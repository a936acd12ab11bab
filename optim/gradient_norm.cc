#include "optim/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace headwise {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kTwoTo96 =
    0x6f800000u;  // the bits of 2^96; NaN and infinity are larger still
// Elements that one task handles. Not a part of the contract: rows are summed on their own.
constexpr std::int64_t kTaskElements = std::int64_t{1} << 16;

// Rows [first, first + kRows) at once: a serial double sum waits for each addition, several side by
// side do not. Returns the largest magnitude, as bits.
template <int kRows>
std::uint32_t SumSquares(const RowSpan<const float>& gradient, std::int64_t first, double* sums) {
  const float* row[kRows];
  double sum[kRows] = {};
  std::uint32_t largest[kRows] = {};
  for (int k = 0; k < kRows; ++k) row[k] = gradient.row(first + k);
  for (std::int64_t i = 0; i < gradient.width; ++i) {
    for (int k = 0; k < kRows; ++k) {
      const double g = row[k][i];
      sum[k] += g * g;
      largest[k] = std::max(largest[k], std::bit_cast<std::uint32_t>(row[k][i]) & kMagnitude);
    }
  }
  std::copy(sum, sum + kRows, sums);
  return *std::max_element(largest, largest + kRows);
}

// p[2i] + p[2i+1] until one is left. Sums of squares are never -0, so adding the padding's +0
// changes no bit and is left out. Overwrites `p`.
double AdjacentPairSum(double* p, std::int64_t n) {
  if (n == 0) return 0.0;
  for (; n > 1; n = (n + 1) / 2) {
    for (std::int64_t i = 0; i < n / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    if (n % 2 != 0) p[n / 2] = p[n - 1];
  }
  return p[0];
}

// Rows [begin, begin + count) of one parameter.
struct Task {
  std::size_t parameter;
  std::int64_t begin, count;
  std::uint32_t largest = 0;  // result
};

}  // namespace

GradientSummary SummarizeGradients(absl::Span<const NamedGradient> gradients, ThreadPool& pool) {
  std::vector<const NamedGradient*> by_name;
  for (const NamedGradient& g : gradients) by_name.push_back(&g);
  std::sort(by_name.begin(), by_name.end(),
            [](const NamedGradient* a, const NamedGradient* b) { return a->name < b->name; });

  std::vector<std::int64_t> first_row;  // of each parameter, in row_sums
  std::vector<Task> tasks;
  std::int64_t num_rows = 0;
  for (std::size_t p = 0; p < by_name.size(); ++p) {
    const RowSpan<const float>& g = by_name[p]->gradient;
    const std::int64_t step =
        std::max<std::int64_t>(8, kTaskElements / std::max<std::int64_t>(1, g.width));
    for (std::int64_t begin = 0; begin < g.rows; begin += step) {
      tasks.push_back({p, begin, std::min(step, g.rows - begin)});
    }
    first_row.push_back(num_rows);
    num_rows += g.rows;
  }

  std::vector<double> row_sums(static_cast<std::size_t>(num_rows));
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t t) {
    Task& task = tasks[static_cast<std::size_t>(t)];
    const RowSpan<const float>& g = by_name[task.parameter]->gradient;
    double* sums = row_sums.data() + first_row[task.parameter];
    const std::int64_t end = task.begin + task.count;
    std::int64_t r = task.begin;
    for (; r + 8 <= end; r += 8)
      task.largest = std::max(task.largest, SumSquares<8>(g, r, sums + r));
    for (; r < end; ++r) task.largest = std::max(task.largest, SumSquares<1>(g, r, sums + r));
  });

  GradientSummary summary;
  std::vector<double> parameter_sums(by_name.size());
  for (std::size_t p = 0; p < by_name.size(); ++p) {
    parameter_sums[p] = AdjacentPairSum(row_sums.data() + first_row[p], by_name[p]->gradient.rows);
  }
  summary.norm = std::sqrt(
      AdjacentPairSum(parameter_sums.data(), static_cast<std::int64_t>(parameter_sums.size())));
  for (const Task& task : tasks) {  // in name order
    if (task.largest >= kTwoTo96) {
      summary.non_finite = by_name[task.parameter]->name;
      break;
    }
  }
  return summary;
}

double ClipFactor(double norm, double clip_norm) {
  return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1.0;
}

}  // namespace headwise
