// The loss of a chunk of tokens whose logits lie on one rank, or are shared out by vocabulary: then
// the ranks that share them agree on each token's maximum, sum of exponentials and target's logit,
// [T] each. Internal to model/ops.
#ifndef HEADWISE_MODEL_OPS_VOCABULARY_LOSS_H_
#define HEADWISE_MODEL_OPS_VOCABULARY_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/parallel/comm/communicator.h"
#include "core/parallel/layout_type.h"
#include "core/tensor/tensor.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/ops.h"

namespace headwise::ops {

class VocabularyLoss {
 public:
  // The layout of the logits [T, V]; undefined: on one rank.
  VocabularyLoss(const OpContext& ctx, const LayoutType& logits);

  // Overwrites losses [T] master from z [T, V's share] master and, unless it is undefined, dz.
  void Run(const LogitTransform& op, const Tensor& z, absl::Span<const std::int32_t> targets,
           const double* loss_scale, const Tensor& losses, const Tensor& dz);

 private:
  template <typename T>
  absl::Status RunShared(const LogitTransform& op, const Tensor& z,
                         absl::Span<const std::int32_t> targets, const double* loss_scale,
                         const Tensor& losses, const Tensor& dz);

  const OpContext& ctx_;
  std::vector<Communicator*> axes_;  // that share the vocabulary; none: it is whole
  std::int64_t begin_ = 0, vocabulary_ = 0;
};

}  // namespace headwise::ops

#endif  // HEADWISE_MODEL_OPS_VOCABULARY_LOSS_H_
