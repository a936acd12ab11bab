#include "model/hf/layer_pattern.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "model/config.h"

namespace headwise {
namespace {

// The distance between layers without rotation, as the last two of them have it; 0: all rotate.
std::int64_t NopeEvery(const std::vector<LayerKind>& layers) {
  const std::int64_t n = static_cast<std::int64_t>(layers.size());
  std::int64_t last = -1;
  for (std::int64_t l = n - 1; l >= 0; --l) {
    if (layers[static_cast<std::size_t>(l)].rotates) continue;
    if (last >= 0) return last - l;
    last = l;
  }
  return last < 0 ? 0 : n;
}

}  // namespace

std::vector<LayerKind> LayersOf(const ModelConfig& model) {
  std::vector<LayerKind> layers;
  for (std::int64_t l = 0; l < model.num_layers(); ++l) {
    layers.push_back({.rotates = LayerUsesRope(model, l), .window = LayerWindow(model, l)});
  }
  return layers;
}

absl::Status SetLayers(const std::vector<LayerKind>& layers, AttentionConfig* attention) {
  HW_CHECK(!layers.empty());
  const std::int64_t n = static_cast<std::int64_t>(layers.size());
  const std::int64_t every = NopeEvery(layers);
  for (std::int64_t l = 0; l < n; ++l) {
    const bool rotates = every == 0 || (n - l - 1) % every != 0;
    if (layers[static_cast<std::size_t>(l)].rotates != rotates) {
      return absl::DataLossError(
          absl::StrCat("layer ", l, rotates ? " has no rotation" : " rotates",
                       "; expected no rotation in every ", every, ". layer counted from the last, ",
                       "so that the last has none"));
    }
  }
  // LayerWindow() takes entry (l + phase) mod period.
  const std::int64_t phase = every == 0 ? 0 : every - n % every;
  for (std::int64_t period = 1; period <= n; ++period) {
    std::vector<std::int64_t> pattern(static_cast<std::size_t>(period));
    bool fits = true;
    for (std::int64_t l = 0; l < n && fits; ++l) {
      std::int64_t& entry = pattern[static_cast<std::size_t>((l + phase) % period)];
      const std::int64_t window = layers[static_cast<std::size_t>(l)].window;
      if (l < period) entry = window;
      fits = entry == window;
    }
    if (!fits) continue;
    attention->mutable_rope()->set_nope_every(every);
    attention->mutable_window_pattern()->Assign(pattern.begin(), pattern.end());
    break;
  }
  return absl::OkStatus();
}

}  // namespace headwise
