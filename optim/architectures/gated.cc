// Separate projections and, beside them, a gate with one row per element of every query head: the
// attention output is multiplied by its sigmoid. The gate's rows are cut as the queries' are; its
// namesake in the feed-forward layer, mlp.gate_proj, is another module's weight whatever its shape.
//
// Sources, in transformers: modeling_muse_glimmer.py, modeling_muse_spark.py, modeling_afmoe.py.
// Fields as in grouped_query.cc.
#include "optim/architectures/families.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

ArchitectureRule Gated(const char* model_type, const GroupedQueryDefaults& defaults,
                       std::vector<const char*> others) {
  const GeometryFn geometry = GroupedQueryFields(defaults);
  AttentionModule module = SeparateModule("layers.*.self_attn", geometry, {}, std::move(others));
  module.members.push_back(
      Projection("gate_proj", ParameterRole::kAttentionGate, [geometry](ModuleConfig& config) {
        return PlaceQuery(config, geometry(config), HeadRole::kGate);
      }));
  return {model_type, {"model."}, {std::move(module)}};
}

}  // namespace

std::vector<ArchitectureRule> GatedRules() {
  return {Gated("afmoe", {2048, 16, 0, 128}, {"q_norm", "k_norm"}),
          Gated("muse_glimmer_text", {6656, 32, 2, 128}, {"qk_norm"}),
          Gated("muse_spark_text", {8192, 128, 16, 64}, {"qk_norm"})};
}

}  // namespace headwise
