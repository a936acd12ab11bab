#include "optim/architectures/registry.h"

#include <map>
#include <utility>

#include "core/base/check.h"
#include "optim/architectures/families.h"

namespace headwise {
namespace {

using RuleTable = std::map<std::string, ArchitectureRule>;

RuleTable BuildTable() {
  RuleTable table;
  for (std::vector<ArchitectureRule> (*family)() :
       {GroupedQueryRules, MultiHeadRules, PerLayerRules, GatedRules, FalconRules, PerHeadQkvRules,
        GptRules, FusedQkvRules, LatentAttentionRules, LinearAttentionRules, MultimodalRules}) {
    for (ArchitectureRule& rule : family()) {
      const std::string model_type = rule.model_type;
      const bool inserted = table.emplace(model_type, std::move(rule)).second;
      HW_CHECK(inserted) << "two rules for " << model_type;
    }
  }
  return table;
}

const RuleTable& Table() {
  static const RuleTable* const table = new RuleTable(BuildTable());
  return *table;
}

}  // namespace

const ArchitectureRule* FindArchitectureRule(const std::string& model_type) {
  const auto it = Table().find(model_type);
  return it == Table().end() ? nullptr : &it->second;
}

std::vector<std::string> ArchitectureNames() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : Table()) names.push_back(name);
  return names;
}

}  // namespace headwise
