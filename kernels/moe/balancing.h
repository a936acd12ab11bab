// balancing: keeping the experts evenly loaded, by an auxiliary loss or by a bias on the choice.
//
//   loss = E * sum_e f[e] P[e]             f[e] = choices of expert e / tokens,
//                                          P[e] = mean over tokens of softmax(z)[e]
//
// (Switch Transformer, arXiv:2101.03961, for k choices as load_balancing_loss_func of transformers'
// modeling_mixtral.py has it; 1 * k when balanced.) f is a constant to the gradient. transformers
// takes both means over the tokens of all layers together: add up the layers' counts, sums and tokens
// before the second and third step. A loss per layer does each layer by itself.
//
//   CountChoices(experts, counts);                                            // [T, k] -> [E]
//   SumProbabilities<float>(z, sums, pool);                                   // [T, E] -> [E]
//   double loss = LoadBalancingLoss<float>(counts, sums, tokens);
//   LoadBalancingBackward<float>(z, counts, tokens, coefficient, dz, pool);   // dz += ...
//
// Without a loss (DeepSeek-V3's, arXiv:2408.15664): after a step, each expert's selection bias
// (router.h) moves by a fixed rate, down if it had more choices than the mean, up if fewer:
//
//   UpdateSelectionBias(counts, 1e-3, bias);
//
// T tokens, E experts, k chosen per token. C is float or double. Order of operations:
//
//   sums      tiles of 64 tokens, each a serial chain of adds from +0, ascending; an adjacent-pair
//             tree over tiles (kernels/common/reductions.h). p as in router.h's plain softmax.
//   loss      in double: a chain fma(f[e], P[e], .) from +0 over ascending e, times E
//   gradient  a[e] = (loss_scale * E / tokens) * f[e], in double, rounded once to C;
//             c = chain of fma(a[e], p[e], .) over ascending e from +0;
//             dz[e] = dz[e] + p[e] * (a[e] - c)
//   bias      bias[e] + rate or bias[e] - rate, one rounding; unchanged at the mean, which is
//             compared in integers: E * counts[e] with the sum of counts
#ifndef HEADWISE_KERNELS_MOE_BALANCING_H_
#define HEADWISE_KERNELS_MOE_BALANCING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// counts (out) [E] = how often each expert stands in experts (in) [T, k]. An expert out of range
// fails an HW_CHECK that names it and its token.
void CountChoices(RowSpan<const std::int32_t> experts, absl::Span<std::int64_t> counts);

// sums (out) [E] = the softmax of each row of logits (in) [T, E], summed over tokens.
template <typename C>
void SumProbabilities(RowSpan<const C> logits, absl::Span<C> sums, ThreadPool& pool);

// The loss of `tokens` tokens; 0 without tokens. counts and sums [E].
template <typename C>
double LoadBalancingLoss(absl::Span<const std::int64_t> counts, absl::Span<const C> sums,
                         std::int64_t tokens);

// Adds the gradient of loss_scale * loss to dlogits (in and out) [T, E]. counts and tokens as in the
// loss: of all its layers, where logits are those of one.
template <typename C>
void LoadBalancingBackward(RowSpan<const C> logits, absl::Span<const std::int64_t> counts,
                           std::int64_t tokens, double loss_scale, RowSpan<C> dlogits,
                           ThreadPool& pool);

// bias (in and out) [E]; counts (in) [E], at most 2^62 / E in sum.
void UpdateSelectionBias(absl::Span<const std::int64_t> counts, float rate, absl::Span<float> bias);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_BALANCING_H_
