// SequenceInfo: what a pass over tokens carries from layer to layer besides activations.
#ifndef HEADWISE_MODEL_SEQUENCE_INFO_H_
#define HEADWISE_MODEL_SEQUENCE_INFO_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "model/ops.h"

namespace headwise {

struct SequenceInfo {
  // Where the tokens stand: [T], and the segments that cover them in order.
  ops::TokenPositions positions;
  absl::Span<const AttentionSegment> segments;
  // What the backward multiplies losses by; routers' auxiliary losses need it.
  ops::LossScale loss_scale;
  // Not null: the forward adds the routers' auxiliary losses.
  double* auxiliary_loss = nullptr;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_SEQUENCE_INFO_H_
