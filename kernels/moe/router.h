// router: which experts a token goes to, and with what weights; forward and backward.
//
//   scores    p = softmax(z) or sigmoid(z)                       z [T, E]: multiplier * logits,
//                                                                E experts
//   chosen    the k experts of the largest p, or of the largest p + selection_bias
//   weights   w = scale * p of the chosen;  with `normalize`   w = scale * p / (sum of p of the chosen)
//
//   const Router op = {.chosen = 4};                             // softmax over the chosen four
//   RouterForward<float>(op, z, {}, experts, weights, pool);     // experts, weights [T, 4]
//   RouterBackward<float>(op, z, experts, dweights, dz, pool);
//
// Equivalent in transformers: Qwen3-MoE's norm_topk_prob is softmax with `normalize`, and so is
// GPT-OSS's softmax over the chosen logits; Mixtral's too. DeepSeek-V3's is sigmoid, `normalize`, a
// selection bias and scale 2.5 (without its groups of experts); Muse Spark's is that with a
// multiplier (and 1e-15 for the 1e-20 below). The selection bias takes part in the choice and in
// nothing else: no weight, no gradient (balancing.h moves it).
//
// T tokens, E experts, k chosen per token. Router logits are in the master type C: float, or double
// for derivative checks. Row spans of any stride and alignment, not owned. A token's bits depend on
// its own logits and the bias only. Exp and Sigmoid are those of kernels/common/math.h; every
// operation is rounded once to C.
//
// First z[e] = logits[e] * multiplier; 1 leaves every bit as it is.
//
// Choice. Key of an expert: z without a bias (the order of p, without the ties that rounding makes);
// p + bias with one. Descending by key; of equal keys the lower expert first. A NaN key counts as
// -infinity. So the k experts of a token are always distinct and in range, and experts[t][0] is the
// most wanted.
//
// Weights of the chosen j = 0 ... k - 1; sums over them are serial, ascending, from +0:
//
//   softmax, normalize   e[j] = Exp(z[j] - max of the chosen z); w = (e[j] / sum of e) * scale
//   softmax              p = Exp(z - m) / s over all E: m the largest z (NaN takes no part), s a sum in
//                        64 chains (expert e in chain e mod 64, ascending, from +0), then
//                        c[i] + c[i + n], n = 32, 16, 8, 4, 2, 1; w = p * scale
//   sigmoid, normalize   w = (Sigmoid(z[j]) / (sum of Sigmoid + 1e-20)) * scale
//   sigmoid              w = Sigmoid(z[j]) * scale
//
// Backward, g[j] = dweights[j] * scale; sums as above, as fma chains:
//
//   softmax, normalize   u[j] = e[j] / sum of e;  c = chain(g, u);  dz[j] = u[j] * (g[j] - c)
//   softmax              c = chain(g, p of the chosen);  dz[e] = p[e] * (g[e] - c), g[e] = +0 for
//                        experts not chosen
//   sigmoid, normalize   s = Sigmoid(z[j]), t = Sigmoid(-z[j]), n = sum of s + 1e-20, u[j] = s / n,
//                        c = chain(g, u);  dz[j] = ((g[j] - c) / n) * (s * t)
//   sigmoid              dz[j] = g[j] * (s * t)
//
// Then dlogits[e] = dz[e] * multiplier; +0 for experts not chosen, but for plain softmax.
// (balancing.h knows no multiplier.) A NaN logit makes weights NaN: of the chosen under `normalize`
// and under softmax of all, of the expert itself under sigmoid.
#ifndef HEADWISE_KERNELS_MOE_ROUTER_H_
#define HEADWISE_KERNELS_MOE_ROUTER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

enum class RouterScore { kSoftmax, kSigmoid };

struct Router {
  std::int64_t chosen = 1;  // k; 1 <= k <= E
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = true;
  double scale = 1.0;       // rounded once to C
  double multiplier = 1.0;  // of the logits; rounded once to C
};

// logits (in) [T, E]; selection_bias (in) [E], or empty; experts (out) [T, k]; weights (out) [T, k].
// Shapes that do not agree, and k out of range, fail an HW_CHECK.
template <typename C>
void RouterForward(const Router& op, RowSpan<const C> logits, absl::Span<const C> selection_bias,
                   RowSpan<std::int32_t> experts, RowSpan<C> weights, ThreadPool& pool);

// logits (in) as in the forward, experts (in) as it wrote them, dweights (in) [T, k]; dlogits (out)
// [T, E], overwritten. An expert out of range fails an HW_CHECK.
template <typename C>
void RouterBackward(const Router& op, RowSpan<const C> logits, RowSpan<const std::int32_t> experts,
                    RowSpan<const C> dweights, RowSpan<C> dlogits, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_ROUTER_H_
