// Layer: one transformer layer on the residual stream.
//
//   middle = h + post_attention_norm(attention(attention_norm(h)))
//   out    = middle + post_ffn_norm(ffn(ffn_norm(middle)))
//
// The backward ends by comparing the layouts of all gradients with their values' duals
// (model/sharding.h).
//
// ffn is dense or a mixture of experts; the residual adds may be gated (residual_site.h).
#ifndef HEADWISE_MODEL_LAYER_H_
#define HEADWISE_MODEL_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/proto/config.pb.h"
#include "core/rope/rotary_table.h"
#include "model/attention_block.h"
#include "model/ffn_block.h"
#include "model/moe_block.h"
#include "model/norm_site.h"
#include "model/ops.h"
#include "model/parameter_store.h"
#include "model/residual_site.h"
#include "model/sequence_info.h"

namespace headwise {

class Layer {
 public:
  // The activations that the backward starts from. What is cheap to compute again (norms, q, k and
  // v, the products of gate and up) is not kept: about 10 N values a token at muse_17m's shape
  // instead of 17.
  struct Saved {
    Tensor input;  // [T, N]
    AttentionBlock::Saved attention;
    Tensor attention_out;     // [T, N]; undefined without a norm after it and a residual gate
    Tensor middle;            // [T, N]
    FfnBlock::Saved ffn;      // of a dense layer
    MoeBlock::Saved experts;  // of a layer with experts
    Tensor ffn_out;           // as attention_out
  };

  // Makes the parameters "layers.<index>...". `rotary` is not owned.
  Layer(const ModelConfig& config, std::int64_t index, const RotaryTable* rotary,
        ParameterStore& store);

  // h [T, N] -> [T, N]. saved may be null.
  Tensor Forward(const OpContext& ctx, const Tensor& h, const SequenceInfo& sequence,
                 Saved* saved) const;
  // The gradient of h from that of the output; overwrites the parameters' gradients; uses up
  // `saved`.
  Tensor Backward(const OpContext& ctx, const Tensor& dout, const SequenceInfo& sequence,
                  Saved saved) const;
  // The forward for the new tokens of the cache's pass.
  Tensor Extend(const OpContext& ctx, const Tensor& h, KvCache& cache) const;

 private:
  // From attention's output on.
  Tensor Finish(const OpContext& ctx, const Tensor& h, Tensor attention_out, double* auxiliary_loss,
                Saved* saved) const;

  // The two halves of Backward().
  Tensor FfnBackward(const OpContext& ctx, const Tensor& dout, const SequenceInfo& sequence,
                     Saved& saved) const;
  Tensor AttentionBackward(const OpContext& ctx, const Tensor& dmiddle,
                           const SequenceInfo& sequence, Saved& saved) const;

  std::string name_;
  std::size_t first_parameter_;  // in the store
  // In this order, which is that of the parameters.
  NormSite attention_norm_;
  AttentionBlock attention_;
  NormSite post_attention_norm_;
  ResidualSite attention_residual_;
  NormSite ffn_norm_;
  std::optional<FfnBlock> ffn_;  // one of the two
  std::optional<MoeBlock> experts_;
  NormSite post_ffn_norm_;
  ResidualSite ffn_residual_;
  std::vector<Parameter*> parameters_;  // of all of these
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_LAYER_H_
