// AttentionBlock: grouped-query self-attention of one layer, from the normed residual stream to
// wo's output.
//
//   packed = x Wqkv^T + bias;  q, k, v = prepare_qkv(packed);  o = attention(q, k, v, sinks)
//   y = (norm(o) * sigmoid(x Wg^T)) Wo^T + bias
//
// Boundaries (model/sharding.h): "in" before x is used; "q", "k" and "v" before attention; "out" after
// the product with Wo, whose bias is added after its steps.
//
// norm is a scaleless norm of each head. Sinks, norm, gate and biases are there if the config says
// so.
#ifndef HEADWISE_MODEL_ATTENTION_BLOCK_H_
#define HEADWISE_MODEL_ATTENTION_BLOCK_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/proto/config.pb.h"
#include "core/rope/rotary_table.h"
#include "model/kv_cache.h"
#include "model/ops.h"
#include "model/parameter_store.h"
#include "model/sequence_info.h"

namespace headwise {

class AttentionBlock {
 public:
  // What the backward needs besides x; q, k and v are computed again from packed.
  struct Saved {
    Tensor packed;                   // [T, (H + 2G) D]
    ops::AttentionOutput attention;  // before norm and gate
    Tensor gate;                     // [T, H D], before the sigmoid; undefined without a gate
  };

  // Makes `name`.wqkv, .wqkv_bias, .q_norm, .k_norm, .sinks, .gate, .wo and .wo_bias, those that the
  // config asks for.
  // `rotary` is not owned; used by layers with RoPE only.
  AttentionBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
                 const RotaryTable* rotary, ParameterStore& store);

  // x [T, N] -> [T, N]. saved may be null.
  Tensor Forward(const OpContext& ctx, const Tensor& x, const SequenceInfo& sequence,
                 Saved* saved) const;
  // dx from dy [T, N]; overwrites the parameters' gradients; uses up `saved`.
  Tensor Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                  const SequenceInfo& sequence, Saved saved) const;
  // The forward for the new tokens of the cache's pass: their keys and values are appended, their
  // queries see the cache.
  Tensor Extend(const OpContext& ctx, const Tensor& x, KvCache& cache) const;

 private:
  ops::QkvArguments Arguments(const ops::TokenPositions& positions) const;
  // The heads that these q and k have.
  Attention AttentionOf(const ops::Qkv& qkv) const;
  Tensor Project(const OpContext& ctx, const Tensor& in) const;
  // q, k and v as attention takes them, after their boundaries.
  ops::Qkv Prepare(const OpContext& ctx, const Tensor& packed,
                   const ops::TokenPositions& positions) const;
  // o [T, H D] with each head normalised; o itself without a norm.
  Tensor NormOutput(const OpContext& ctx, const Tensor& o) const;
  // From attention's output to wo's; keeps the gate in saved if that is not null.
  Tensor Output(const OpContext& ctx, const Tensor& in, const Tensor& o, Saved* saved) const;

  std::int64_t layer_;
  QkvPreparation prepare_;  // of this rank's heads
  Attention attention_;     // of all heads
  RmsNorm output_norm_;
  bool unfused_;
  LinearWeight wqkv_, gate_, wo_;  // gate_.parameter is null without a gate
  Parameter* bias_ = nullptr;      // of wqkv; null without
  Parameter* wo_bias_ = nullptr;   // null without
  Parameter* sinks_ = nullptr;     // [H]; null without
  Parameter* q_norm_ = nullptr;    // null unless the head norm has weights
  Parameter* k_norm_ = nullptr;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_ATTENTION_BLOCK_H_
