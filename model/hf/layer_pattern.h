// layer_pattern: what config.json says layer by layer, as the periodic pattern that a ModelConfig
// has, and back.
#ifndef HEADWISE_MODEL_HF_LAYER_PATTERN_H_
#define HEADWISE_MODEL_HF_LAYER_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/proto/config.pb.h"

namespace headwise {

struct LayerKind {
  bool rotates = true;
  std::int64_t window = 0;  // keys a query sees, itself included; 0: all
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

// The layers of a model, by LayerUsesRope() and LayerWindow() of model/config.h.
std::vector<LayerKind> LayersOf(const ModelConfig& model);

// Sets rope.nope_every and the shortest window_pattern that give these layers; at least one layer.
// Any windows can be expressed. kDataLoss, naming a layer, if the layers without rotation are not
// every e-th counted from the last.
absl::Status SetLayers(const std::vector<LayerKind>& layers, AttentionConfig* attention);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_LAYER_PATTERN_H_
