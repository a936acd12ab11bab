#include "kernels/moe/balancing.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/check.h"
#include "kernels/common/reductions.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/moe/softmax_row.h"

namespace headwise {
namespace {

// Tokens of a task of the gradient.
constexpr std::int64_t kTokensOfTask = 32;

double Share(std::int64_t count, std::int64_t tokens) {
  return static_cast<double>(count) / static_cast<double>(tokens);
}

}  // namespace

void CountChoices(RowSpan<const std::int32_t> experts, absl::Span<std::int64_t> counts) {
  const auto num_experts = static_cast<std::int64_t>(counts.size());
  std::fill(counts.begin(), counts.end(), 0);
  for (std::int64_t t = 0; t < experts.rows; ++t) {
    for (std::int64_t j = 0; j < experts.width; ++j) {
      const std::int32_t expert = experts.row(t)[j];
      HW_CHECK(expert >= 0 && expert < num_experts)
          << "expert " << expert << " of token " << t << ", of " << num_experts << " experts";
      ++counts[expert];
    }
  }
}

template <typename C>
void SumProbabilities(RowSpan<const C> logits, absl::Span<C> sums, ThreadPool& pool) {
  HW_CHECK_EQ(static_cast<std::int64_t>(sums.size()), logits.width) << "experts of sums";
  SumOverTokens(logits.rows, sums, pool, [&](std::int64_t begin, std::int64_t end, C* sum) {
    ThreadScratch scratch;
    C* const p = scratch.Take<C>(logits.width);
    for (std::int64_t t = begin; t < end; ++t) {
      moe::SoftmaxRow(logits.row(t), logits.width, p);
      for (std::int64_t e = 0; e < logits.width; ++e) sum[e] = sum[e] + p[e];
    }
  });
}

template <typename C>
double LoadBalancingLoss(absl::Span<const std::int64_t> counts, absl::Span<const C> sums,
                         std::int64_t tokens) {
  HW_CHECK_EQ(counts.size(), sums.size()) << "experts of counts and sums";
  if (tokens == 0) return 0;
  double sum = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    const double mean = static_cast<double>(sums[e]) / static_cast<double>(tokens);
    sum = Fma(Share(counts[e], tokens), mean, sum);
  }
  return sum * static_cast<double>(counts.size());
}

template <typename C>
void LoadBalancingBackward(RowSpan<const C> logits, absl::Span<const std::int64_t> counts,
                           std::int64_t tokens, double loss_scale, RowSpan<C> dlogits,
                           ThreadPool& pool) {
  const std::int64_t num_experts = logits.width;
  HW_CHECK_EQ(static_cast<std::int64_t>(counts.size()), num_experts) << "experts of counts";
  HW_CHECK_EQ(dlogits.rows, logits.rows) << "tokens of dlogits";
  HW_CHECK_EQ(dlogits.width, num_experts) << "experts of dlogits";
  if (logits.rows == 0) return;
  HW_CHECK_GE(tokens, logits.rows);
  const double per_token =
      loss_scale * static_cast<double>(num_experts) / static_cast<double>(tokens);
  std::vector<C> a;
  for (const std::int64_t count : counts) {
    a.push_back(static_cast<C>(per_token * Share(count, tokens)));
  }
  pool.ParallelFor((logits.rows + kTokensOfTask - 1) / kTokensOfTask, [&](std::int64_t task) {
    ThreadScratch scratch;
    C* const p = scratch.Take<C>(num_experts);
    const std::int64_t end = std::min((task + 1) * kTokensOfTask, logits.rows);
    for (std::int64_t t = task * kTokensOfTask; t < end; ++t) {
      moe::SoftmaxRow(logits.row(t), num_experts, p);
      C c = 0;
      for (std::int64_t e = 0; e < num_experts; ++e) c = Fma(a[e], p[e], c);
      C* const dz = dlogits.row(t);
      for (std::int64_t e = 0; e < num_experts; ++e) dz[e] = dz[e] + p[e] * (a[e] - c);
    }
  });
}

void UpdateSelectionBias(absl::Span<const std::int64_t> counts, float rate,
                         absl::Span<float> bias) {
  HW_CHECK_EQ(counts.size(), bias.size()) << "experts of counts and bias";
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto num_experts = static_cast<std::int64_t>(counts.size());
  for (std::size_t e = 0; e < counts.size(); ++e) {
    const std::int64_t load = num_experts * counts[e];
    if (load > total) bias[e] = bias[e] - rate;
    if (load < total) bias[e] = bias[e] + rate;
  }
}

#define HEADWISE_INSTANTIATE(C)                                                             \
  template void SumProbabilities<C>(RowSpan<const C>, absl::Span<C>, ThreadPool&);          \
  template double LoadBalancingLoss<C>(absl::Span<const std::int64_t>, absl::Span<const C>, \
                                       std::int64_t);                                       \
  template void LoadBalancingBackward<C>(RowSpan<const C>, absl::Span<const std::int64_t>,  \
                                         std::int64_t, double, RowSpan<C>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
