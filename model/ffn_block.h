// FfnBlock: a dense feed-forward layer, or the expert that every token goes through.
//
//   y = act(x W1^T + b1, x W3^T + b3) W2^T + b2          act: SwiGLU, plain or clamped
//
// Boundaries (model/sharding.h): "in" before x is used, "out" after the product with W2; b2 is added
// after the steps of "out", or if there are none, in the product, after those of "w2_bias".
#ifndef HEADWISE_MODEL_FFN_BLOCK_H_
#define HEADWISE_MODEL_FFN_BLOCK_H_

#include <cstdint>
#include <string>

#include "core/proto/config.pb.h"
#include "model/ops.h"
#include "model/parameter_store.h"

namespace headwise {

class FfnBlock {
 public:
  // What the backward needs besides x; the product of gate and up is computed again there.
  struct Saved {
    Tensor gate, up;  // [T, F]
  };

  // Makes `name`.w1, .w3 [F, N] and .w2 [N, F] of layer `layer`, F = width, and with biases
  // .w1_bias, .w3_bias and .w2_bias.
  FfnBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
           std::int64_t width, ParameterStore& store);

  // x [T, N] -> [T, N]. saved may be null.
  Tensor Forward(const OpContext& ctx, const Tensor& x, Saved* saved) const;
  // dx from dy [T, N]; overwrites the parameters' gradients; uses up `saved`.
  Tensor Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy, Saved saved) const;

 private:
  // A matrix and its bias; null without.
  struct Projection {
    LinearWeight weight;
    Parameter* bias = nullptr;

    Tensor Forward(const OpContext& ctx, const Tensor& x) const;
    // The gradients of weight and bias.
    void BackwardWeight(const OpContext& ctx, const Tensor& dy, const Tensor& x) const;
  };

  Swiglu activation_;
  Projection w1_, w3_, w2_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_FFN_BLOCK_H_
