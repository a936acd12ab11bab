#include "optim/architectures/separate.h"

#include <optional>
#include <utility>

namespace headwise {
namespace {

// H / G; kNoGeometry if that is no integer.
std::int64_t GroupSize(ModuleConfig& module, const AttentionGeometry& g) {
  return module.Quotient("number of query heads", g.query_heads, "number of key/value heads",
                         g.kv_heads);
}

std::int64_t ValueDim(const AttentionGeometry& g) {
  return g.value_dim > 0 ? g.value_dim : g.head_dim;
}

}  // namespace

GeometryFn GroupedQueryFields(GroupedQueryDefaults defaults) {
  return [defaults](ModuleConfig& module) {
    AttentionGeometry g;
    g.width = module.Count({"hidden_size"}, defaults.hidden_size);
    g.query_heads = module.Count({"num_attention_heads"}, defaults.heads);
    if (defaults.kv_heads > 0 && module.Absent({"num_key_value_heads"})) {
      g.kv_heads = module.Count({"num_key_value_heads"}, defaults.kv_heads);
    } else {
      g.kv_heads = module.MaybeCount({"num_key_value_heads"}).value_or(g.query_heads);
    }
    if (defaults.head_dim > 0) {
      g.head_dim = module.Count({"head_dim"}, defaults.head_dim);
    } else if (const std::optional<std::int64_t> head_dim = defaults.head_dim == kHeadDimNotRead
                                                                ? std::nullopt
                                                                : module.MaybeCount({"head_dim"})) {
      g.head_dim = *head_dim;
    } else {
      g.head_dim = module.Quotient("hidden_size", g.width, "num_attention_heads", g.query_heads);
    }
    return g;
  };
}

GeometryFn MultiHeadFields(MultiHeadFieldNames names) {
  return [names = std::move(names)](ModuleConfig& module) {
    AttentionGeometry g;
    g.width = module.Count(names.width, names.default_width);
    g.query_heads = module.Count(names.heads, names.default_heads);
    g.kv_heads = g.query_heads;
    g.head_dim = module.Quotient(names.width[0], g.width, names.heads[0], g.query_heads);
    return g;
  };
}

Placement PlaceQuery(ModuleConfig& module, const AttentionGeometry& g, HeadRole role) {
  return {HeadPattern::Separate(role, g.query_heads, g.head_dim, GroupSize(module, g)), g.width};
}

Placement PlaceKeyOrValue(ModuleConfig& module, const AttentionGeometry& g, HeadRole role) {
  GroupSize(module, g);
  return {
      HeadPattern::Separate(role, g.kv_heads, role == HeadRole::kValue ? ValueDim(g) : g.head_dim),
      g.width};
}

Placement PlaceOutput(ModuleConfig& module, const AttentionGeometry& g) {
  return {HeadPattern::Separate(HeadRole::kQuery, g.query_heads, ValueDim(g), GroupSize(module, g)),
          g.width, BlockAxis::kColumns};
}

AttentionModule SeparateModule(const char* path, const GeometryFn& geometry,
                               const SeparateNames& names, std::vector<const char*> others) {
  const auto key_or_value = [&](HeadRole role) -> PlaceFn {
    return [geometry, role](ModuleConfig& module) {
      return PlaceKeyOrValue(module, geometry(module), role);
    };
  };
  return {
      .path = path,
      .members = {Projection(names.query, ParameterRole::kQuery,
                             [geometry](ModuleConfig& module) {
                               return PlaceQuery(module, geometry(module), HeadRole::kQuery);
                             }),
                  Projection(names.key, ParameterRole::kKey, key_or_value(HeadRole::kKey)),
                  Projection(names.value, ParameterRole::kValue, key_or_value(HeadRole::kValue)),
                  Output(names.output,
                         [geometry](ModuleConfig& module) {
                           return PlaceOutput(module, geometry(module));
                         })},
      .others = std::move(others)};
}

}  // namespace headwise
