// OutputHead: final norm, output projection (its own or the embedding's), multiplier and soft cap,
// and the loss.
//
// Boundary "head.in" (model/sharding.h) after the norm.
//
//   z = norm(h) W^T   in the master dtype;   logits = cap * tanh(multiplier * z / cap)
#ifndef HEADWISE_MODEL_OUTPUT_HEAD_H_
#define HEADWISE_MODEL_OUTPUT_HEAD_H_

#include <cstdint>

#include "core/proto/config.pb.h"
#include "model/norm_site.h"
#include "model/ops.h"
#include "model/parameter_store.h"

namespace headwise {

class OutputHead {
 public:
  // Makes final_norm.weight and, unless the config ties it to the embedding [V, N], head.weight
  // [V, N].
  OutputHead(const ModelConfig& config, const LinearWeight& embedding, ParameterStore& store);

  // Transformed logits [T, V] of h [T, N]; kF32 master only.
  Tensor Logits(const OpContext& ctx, const Tensor& h) const;

  // *loss <- the sum of this rank's token losses (ops::SumLosses). If dh is not null: the gradient
  // of h for scale times that sum, with the parameters' gradients overwritten (that of a tied
  // embedding with the head's part).
  void Loss(const OpContext& ctx, const Tensor& h, const ops::TokenIds& targets,
            const ops::LossScale& scale, double* loss, Tensor* dh) const;

 private:
  NormSite norm_;
  LinearWeight weight_;
  LogitTransform transform_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_OUTPUT_HEAD_H_
