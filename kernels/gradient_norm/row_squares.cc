#include "kernels/gradient_norm/row_squares.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace headwise {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
// Elements that one task handles. Not a part of the contract: rows are summed on their own.
constexpr std::int64_t kTaskElements = std::int64_t{1} << 16;

// Rows [first, first + kRows) at once: a serial double sum waits for each addition, several side by
// side do not. Returns the largest magnitude, as bits.
template <int kRows>
std::uint32_t SumSquares(const RowSpan<const float>& gradient, std::int64_t first, double* sums) {
  const float* row[kRows];
  double sum[kRows];
  std::uint32_t largest[kRows] = {};
  std::copy(sums, sums + kRows, sum);
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

// Rows [begin, begin + count) of one gradient.
struct Task {
  std::size_t gradient;
  std::int64_t begin, count;
  std::uint32_t largest = 0;  // result
};

}  // namespace

void AddRowSquares(absl::Span<RowSquares> gradients, ThreadPool& pool) {
  std::vector<Task> tasks;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const RowSpan<const float>& g = gradients[p].gradient;
    const std::int64_t step =
        std::max<std::int64_t>(8, kTaskElements / std::max<std::int64_t>(1, g.width));
    for (std::int64_t begin = 0; begin < g.rows; begin += step) {
      tasks.push_back({p, begin, std::min(step, g.rows - begin)});
    }
  }
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t t) {
    Task& task = tasks[static_cast<std::size_t>(t)];
    const RowSpan<const float>& g = gradients[task.gradient].gradient;
    double* const sums = gradients[task.gradient].sums.data();
    const std::int64_t end = task.begin + task.count;
    std::int64_t r = task.begin;
    for (; r + 8 <= end; r += 8)
      task.largest = std::max(task.largest, SumSquares<8>(g, r, sums + r));
    for (; r < end; ++r) task.largest = std::max(task.largest, SumSquares<1>(g, r, sums + r));
  });
  for (const Task& task : tasks) {
    if (task.largest >= kUnusableBits) gradients[task.gradient].unusable = true;
  }
}

double AdjacentPairSum(absl::Span<double> sums) {
  // p[2i] + p[2i+1] until one is left. Adding the padding's +0 changes no bit and is left out.
  if (sums.empty()) return 0.0;
  for (std::size_t n = sums.size(); n > 1; n = (n + 1) / 2) {
    for (std::size_t i = 0; i < n / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    if (n % 2 != 0) sums[n / 2] = sums[n - 1];
  }
  return sums[0];
}

}  // namespace headwise
