// MoeBlock: a feed-forward layer of experts.
//
//   z = x Wr^T + br                       router logits [T, E], in the master dtype
//   experts, weights = router(z)          the k best of each token
//   u = norm(x Wdown^T)                   [T, M]; u = x where experts work at the model's width
//   y_e = norm(act(u W1_e^T + b1_e, u W3_e^T + b3_e) W2_e^T + b2_e)
//   y = (sum over a token's experts of weight * y_e) Wup^T  +  shared expert of x
//
// Boundaries (model/sharding.h), in this order: "in" before x is used; "narrow" after Wdown;
// "dispatch" and "combine" around the experts (model/ops/expert_exchange.h), "w2_bias" of b2_e and
// "experts_out" after W2; "wide" before Wup; "out" at the end. "loads" after the choices are
// counted, "balancing" before an auxiliary loss uses them.
//
// The norms are there if the config says so. Balancing: kernels/moe/balancing.h; an auxiliary loss
// counts per layer, weighted as if it were that of every token of the pass.
#ifndef HEADWISE_MODEL_MOE_BLOCK_H_
#define HEADWISE_MODEL_MOE_BLOCK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/proto/config.pb.h"
#include "model/ffn_block.h"
#include "model/norm_site.h"
#include "model/ops.h"
#include "model/ops/expert_exchange.h"
#include "model/parameter_store.h"

namespace headwise {

class MoeBlock {
 public:
  // What the backward needs besides x; M is the experts' width, R = T k rows sorted by expert.
  struct Saved {
    Tensor logits;  // [T, E]
    ops::Routing routing;
    ExpertExchange exchange;
    Tensor narrow;    // [T, M], before its norm; undefined without a projection
    Tensor gate, up;  // [R, F]
    Tensor outputs;   // [R, M], before their norm, after boundary "experts_out"
    Tensor combined;  // [T, M]; undefined without a projection
    FfnBlock::Saved shared;
  };

  // Makes `name`.router [E, N], .router_bias, .balancing_bias [E], .pre_expert_proj [M, N],
  // .pre_expert_norm.weight [M], .w1, .w3 [E, F, M], .w2 [E, M, F] and their biases
  // (.w1_bias [E, F], ...), .post_expert_norm.weight [M], .post_expert_proj [N, M], .shared.w1, ...:
  // those that the config asks for.
  MoeBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
           ParameterStore& store);

  // x [T, N] -> [T, N]. saved may be null. Adds coefficient * tokens * the auxiliary loss to
  // *auxiliary_loss, unless that is null.
  Tensor Forward(const OpContext& ctx, const Tensor& x, Saved* saved, double* auxiliary_loss) const;
  // dx from dy [T, N]; overwrites the parameters' gradients, that of .balancing_bias with the loads;
  // uses up `saved`. scale multiplies the auxiliary loss as it does the tokens' losses.
  Tensor Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                  const ops::LossScale& scale, Saved saved) const;

 private:
  // An expert matrix and its bias; null without.
  struct Projection {
    LinearWeight weight;
    Parameter* bias = nullptr;

    Tensor Forward(const OpContext& ctx, const ops::ExpertRows& rows, const Tensor& x) const;
    void BackwardWeight(const OpContext& ctx, const ops::ExpertRows& rows, const Tensor& dy,
                        const Tensor& x) const;
  };

  bool narrow() const { return down_.parameter != nullptr; }
  // The loads of all tokens, as an auxiliary loss takes them.
  Tensor BalancingLoads(const OpContext& ctx, const Tensor& logits,
                        const ops::Routing& routing) const;
  // The gradients of router and its bias from dweights; its part of dx.
  Tensor RouterBackward(const OpContext& ctx, const Tensor& x, const Saved& saved,
                        const Tensor& dweights, const ops::LossScale& scale) const;

  Router router_op_;
  Swiglu activation_;
  double auxiliary_weight_;  // 0: no auxiliary loss
  LinearWeight router_;
  Parameter* router_bias_ = nullptr;     // null without
  Parameter* balancing_bias_ = nullptr;  // null without
  LinearWeight down_, up_;               // null without
  std::optional<NormSite> pre_norm_, post_norm_;
  Projection w1_, w3_, w2_;
  std::optional<FfnBlock> shared_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_MOE_BLOCK_H_
