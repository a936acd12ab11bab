// FfnBlock: the SwiGLU feed-forward layer, y = (silu(x W1^T) * (x W3^T)) W2^T.
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
  // What the backward needs besides x; the product silu(gate) * up is computed again there.
  struct Saved {
    Tensor gate, up;  // [T, F]
  };

  // Makes `name`.w1, .w3 [F, N] and .w2 [N, F] of layer `layer`.
  FfnBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
           ParameterStore& store);

  // x [T, N] -> [T, N]. saved may be null.
  Tensor Forward(const OpContext& ctx, const Tensor& x, Saved* saved) const;
  // dx from dy [T, N]; overwrites the weights' gradients; uses up `saved`.
  Tensor Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy, Saved saved) const;

 private:
  LinearWeight w1_, w3_, w2_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_FFN_BLOCK_H_
