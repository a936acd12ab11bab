#include "model/hf/muse_fields.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/hf/common_fields.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

// Which layers rotate: those whose theta is not 0. Every other theta is that of all.
std::vector<bool> ReadRotates(ConfigFields& fields, const ModelConfig& model) {
  const std::int64_t n = model.num_layers();
  std::vector<bool> rotates(static_cast<std::size_t>(n));
  for (std::int64_t l = 0; l < n; ++l) {
    rotates[static_cast<std::size_t>(l)] = (n - 1 - l) % 4 != 0;
  }
  const auto thetas = fields.Numbers("layer_rope_theta");
  if (!thetas.has_value()) return rotates;
  if (thetas->size() != rotates.size()) {
    fields.Fail("layer_rope_theta", absl::StrCat("expected num_hidden_layers = ", n,
                                                 " entries, found ", thetas->size()));
    return rotates;
  }
  const double theta = model.attention().rope().theta();
  for (std::size_t l = 0; l < rotates.size(); ++l) {
    rotates[l] = (*thetas)[l] != 0;
    if (rotates[l] && (*thetas)[l] != theta) {
      fields.Fail(absl::StrCat("layer_rope_theta[", l, "]"),
                  absl::StrCat((*thetas)[l], " is not supported; expected 0, or the rope_theta ",
                               "of all layers, ", theta));
    }
  }
  return rotates;
}

}  // namespace

NormConfig GainCentredNorm(double epsilon) {
  NormConfig norm;
  norm.set_style(RMS_GAIN_CENTERED);
  norm.set_epsilon(epsilon);
  norm.set_centre(1);
  return norm;
}

void ReadMuseLayers(ConfigFields& fields, ModelConfig* model) {
  const std::int64_t n = model->num_layers();
  std::vector<bool> slides(static_cast<std::size_t>(n));
  for (std::int64_t l = 0; l < n; ++l) {
    slides[static_cast<std::size_t>(l)] = (n - 1 - l) % 4 != 0;
  }
  std::vector<LayerKind> layers =
      ReadLayerTypes(fields, std::move(slides), ReadWindow(fields, 2048));
  const std::vector<bool> rotates = ReadRotates(fields, *model);
  for (std::size_t l = 0; l < layers.size(); ++l) layers[l].rotates = rotates[l];
  SetLayersOrFail(layers, "layer_rope_theta", fields, model);
}

void WriteMuseLayers(const ModelConfig& model, json* fields) {
  (*fields)["layer_types"] = LayerTypes(model);
  const std::int64_t window = OneWindow(model);
  (*fields)["sliding_window"] = window > 0 ? json(window) : json();
  json thetas = json::array();
  for (const LayerKind& layer : LayersOf(model)) {
    thetas.push_back(layer.rotates ? model.attention().rope().theta() : 0.0);
  }
  (*fields)["layer_rope_theta"] = thetas;
}

json SmallestVisionTower(const char* model_type) {
  return {{"model_type", model_type}, {"hidden_size", 8},       {"intermediate_size", 8},
          {"num_attention_heads", 1}, {"num_hidden_layers", 1}, {"patch_size", 2},
          {"pos_emb_height", 2},      {"pos_emb_width", 2},     {"max_position_embeddings", 4}};
}

}  // namespace headwise
