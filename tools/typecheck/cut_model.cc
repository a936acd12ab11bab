#include "tools/typecheck/cut_model.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "model/config.h"

namespace headwise::typecheck {
namespace {

constexpr char kLayers[] = "layers.";

// "layers.5.ffn.in" with 5 replaced by its place among `layers`; false if it has none.
bool Renumber(const std::vector<std::int64_t>& layers, std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kLayers)) return true;
  const std::string number(rest.substr(0, rest.find('.')));
  std::int64_t layer = 0;
  if (!absl::SimpleAtoi(number, &layer)) return true;
  const auto at = std::find(layers.begin(), layers.end(), layer);
  if (at == layers.end()) return false;
  name = absl::StrCat(kLayers, at - layers.begin(), name.substr(7 + number.size()));
  return true;
}

}  // namespace

CutModel Cut(const ModelConfig& model, const LayoutPlan& plan, std::int64_t wanted) {
  const std::int64_t count = model.num_layers();
  const std::int64_t period = std::max<std::int64_t>(
      {1, model.attention().rope().nope_every(), model.attention().window_pattern_size()});
  std::set<std::int64_t> layers;
  if (wanted >= 0 && wanted < count) layers.insert(wanted);
  for (const bool experts : {false, true}) {
    for (std::int64_t l = 0; l < count; ++l) {
      if (LayerHasExperts(model, l) != experts) continue;
      layers.insert(l);
      break;
    }
  }
  for (std::int64_t l = 0; l < count && static_cast<std::int64_t>(layers.size()) < period; ++l) {
    layers.insert(l);
  }
  CutModel cut = {.model = model, .layers = {layers.begin(), layers.end()}};
  cut.model.set_num_layers(static_cast<std::int64_t>(cut.layers.size()));
  if (model.ffn().has_moe()) {
    cut.model.mutable_ffn()->mutable_moe()->set_dense_layers(
        std::count_if(cut.layers.begin(), cut.layers.end(),
                      [&](std::int64_t l) { return !LayerHasExperts(model, l); }));
  }
  for (PlanEntry entry : plan.entries()) {
    if (Renumber(cut.layers, entry.name)) cut.plan.Apply(std::move(entry));
  }
  return cut;
}

}  // namespace headwise::typecheck
