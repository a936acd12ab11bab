#include "kernels/moe/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/moe/softmax_row.h"

namespace headwise {
namespace {

constexpr double kSigmoidSumEpsilon = 1e-20;

// Tokens of a task.
constexpr std::int64_t kTokensOfTask = 32;

// What both directions of one token compute.
template <typename C>
class TokenRouter {
 public:
  TokenRouter(const Router& op, std::int64_t num_experts)
      : op_(op),
        num_experts_(num_experts),
        scale_(static_cast<C>(op.scale)),
        multiplier_(static_cast<C>(op.multiplier)),
        z_(scratch_.Take<C>(num_experts)),
        score_(scratch_.Take<C>(num_experts)),
        best_(scratch_.Take<C>(op.chosen)),
        unit_(scratch_.Take<C>(op.chosen)) {}

  // The token that the other functions are about.
  void SetLogits(const C* logits) {
    ForEachLanes(0, num_experts_, [&](auto at) HW_ALWAYS_INLINE {
      at.Store(z_, at.Load(logits) * Vec16<C>(multiplier_));
    });
  }

  void Choose(absl::Span<const C> bias, std::int32_t* experts) {
    const C* key = z_;
    if (!bias.empty()) {
      AllScores();
      for (std::int64_t e = 0; e < num_experts_; ++e) score_[e] = score_[e] + bias[e];
      key = score_;
    }
    // best_ and experts are the chosen of experts [0, e), in order.
    std::int64_t count = 0;
    for (std::int64_t e = 0; e < num_experts_; ++e) {
      const C mine = std::isnan(key[e]) ? -std::numeric_limits<C>::infinity() : key[e];
      if (count == op_.chosen && !(mine > best_[count - 1])) continue;
      std::int64_t place = count == op_.chosen ? count - 1 : count++;
      for (; place > 0 && mine > best_[place - 1]; --place) {
        best_[place] = best_[place - 1];
        experts[place] = experts[place - 1];
      }
      best_[place] = mine;
      experts[place] = static_cast<std::int32_t>(e);
    }
  }

  void Weights(const std::int32_t* experts, C* weights) {
    UnitWeights(experts);
    for (std::int64_t j = 0; j < op_.chosen; ++j) weights[j] = unit_[j] * scale_;
  }

  void Gradient(const std::int32_t* experts, const C* dweights, C* dz) {
    const C normalizer = UnitWeights(experts);
    C* const g = best_;
    C c = 0;
    for (std::int64_t j = 0; j < op_.chosen; ++j) {
      g[j] = dweights[j] * scale_;
      c = Fma(g[j], unit_[j], c);
    }
    if (op_.score == RouterScore::kSoftmax && !op_.normalize) {
      std::fill_n(dz, num_experts_, C{0});
      for (std::int64_t j = 0; j < op_.chosen; ++j) dz[experts[j]] = g[j];
      for (std::int64_t e = 0; e < num_experts_; ++e) {
        dz[e] = (score_[e] * (dz[e] - c)) * multiplier_;
      }
      return;
    }
    std::fill_n(dz, num_experts_, C{0});
    for (std::int64_t j = 0; j < op_.chosen; ++j) {
      C& out = dz[experts[j]];
      if (op_.score == RouterScore::kSoftmax) {
        out = (unit_[j] * (g[j] - c)) * multiplier_;
        continue;
      }
      const SigmoidPair sigmoid(z_[experts[j]]);
      const C dscore = op_.normalize ? (g[j] - c) / normalizer : g[j];
      out = (dscore * (sigmoid.value * sigmoid.complement)) * multiplier_;
    }
  }

 private:
  void AllScores() {
    if (op_.score == RouterScore::kSoftmax) return moe::SoftmaxRow(z_, num_experts_, score_);
    ForEachLanes(0, num_experts_,
                 [&](auto at) HW_ALWAYS_INLINE { at.Store(score_, Sigmoid(at.Load(z_))); });
  }

  // unit_[j], the weights before the scale; under plain softmax also all of score_. Returns what
  // normalized scores were divided by.
  C UnitWeights(const std::int32_t* experts) {
    const bool softmax = op_.score == RouterScore::kSoftmax;
    if (softmax && !op_.normalize) {
      AllScores();
      for (std::int64_t j = 0; j < op_.chosen; ++j) unit_[j] = score_[experts[j]];
      return C{1};
    }
    C max = -std::numeric_limits<C>::infinity();
    for (std::int64_t j = 0; j < op_.chosen; ++j) max = Max(z_[experts[j]], max);
    C sum = 0;
    for (std::int64_t j = 0; j < op_.chosen; ++j) {
      unit_[j] = softmax ? Exp(z_[experts[j]] - max) : Sigmoid(z_[experts[j]]);
      sum = sum + unit_[j];
    }
    if (!op_.normalize) return C{1};
    if (!softmax) sum = sum + static_cast<C>(kSigmoidSumEpsilon);
    for (std::int64_t j = 0; j < op_.chosen; ++j) unit_[j] = unit_[j] / sum;
    return sum;
  }

  const Router& op_;
  const std::int64_t num_experts_;
  const C scale_, multiplier_;
  ThreadScratch scratch_;
  C *z_, *score_;    // [E]
  C *best_, *unit_;  // [k]
};

// route(router, t) for every token, whose logits router has.
template <typename C, typename Route>
void ForEachToken(const Router& op, RowSpan<const C> logits, ThreadPool& pool, Route route) {
  pool.ParallelFor((logits.rows + kTokensOfTask - 1) / kTokensOfTask, [&](std::int64_t task) {
    TokenRouter<C> router(op, logits.width);
    const std::int64_t end = std::min((task + 1) * kTokensOfTask, logits.rows);
    for (std::int64_t t = task * kTokensOfTask; t < end; ++t) {
      router.SetLogits(logits.row(t));
      route(router, t);
    }
  });
}

template <typename C>
void CheckShapes(const Router& op, RowSpan<const C> logits, std::int64_t rows, std::int64_t width,
                 const char* what) {
  HW_CHECK(op.chosen >= 1 && op.chosen <= logits.width)
      << op.chosen << " chosen of " << logits.width << " experts";
  HW_CHECK(logits.width <= std::numeric_limits<std::int32_t>::max()) << logits.width << " experts";
  HW_CHECK(rows == logits.rows && width == op.chosen)
      << what << " is " << rows << " x " << width << ", must be " << logits.rows << " x "
      << op.chosen;
}

}  // namespace

template <typename C>
void RouterForward(const Router& op, RowSpan<const C> logits, absl::Span<const C> selection_bias,
                   RowSpan<std::int32_t> experts, RowSpan<C> weights, ThreadPool& pool) {
  CheckShapes(op, logits, experts.rows, experts.width, "experts");
  CheckShapes(op, logits, weights.rows, weights.width, "weights");
  HW_CHECK(selection_bias.empty() ||
           static_cast<std::int64_t>(selection_bias.size()) == logits.width)
      << "selection_bias has " << selection_bias.size() << " elements, logits are " << logits.width
      << " wide";
  ForEachToken(op, logits, pool, [&](TokenRouter<C>& router, std::int64_t t) {
    router.Choose(selection_bias, experts.row(t));
    router.Weights(experts.row(t), weights.row(t));
  });
}

template <typename C>
void RouterBackward(const Router& op, RowSpan<const C> logits, RowSpan<const std::int32_t> experts,
                    RowSpan<const C> dweights, RowSpan<C> dlogits, ThreadPool& pool) {
  CheckShapes(op, logits, experts.rows, experts.width, "experts");
  CheckShapes(op, logits, dweights.rows, dweights.width, "dweights");
  HW_CHECK_EQ(dlogits.rows, logits.rows) << "tokens of dlogits";
  HW_CHECK_EQ(dlogits.width, logits.width) << "experts of dlogits";
  ForEachToken(op, logits, pool, [&](TokenRouter<C>& router, std::int64_t t) {
    const std::int32_t* const mine = experts.row(t);
    for (std::int64_t j = 0; j < op.chosen; ++j) {
      HW_CHECK(mine[j] >= 0 && mine[j] < logits.width)
          << "expert " << mine[j] << " of token " << t << ", of " << logits.width << " experts";
    }
    router.Gradient(mine, dweights.row(t), dlogits.row(t));
  });
}

#define HEADWISE_INSTANTIATE(C)                                                                 \
  template void RouterForward<C>(const Router&, RowSpan<const C>, absl::Span<const C>,          \
                                 RowSpan<std::int32_t>, RowSpan<C>, ThreadPool&);               \
  template void RouterBackward<C>(const Router&, RowSpan<const C>, RowSpan<const std::int32_t>, \
                                  RowSpan<const C>, RowSpan<C>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
