#include "optim/architectures/rule.h"

#include <utility>

namespace headwise {

Member Projection(const char* name, ParameterRole role, PlaceFn place) {
  return {.name = name, .role = role, .place = std::move(place)};
}

Member Output(const char* name, PlaceFn place) {
  return {.name = name,
          .role = ParameterRole::kAttentionOutput,
          .place = std::move(place),
          .why = "attention output: its heads lie on the columns, which are not cut by default",
          .output = true};
}

Member NoHeads(const char* name, ParameterRole role, const char* why) {
  return {.name = name, .role = role, .why = why};
}

Member LowRank(const char* name, ParameterRole role) {
  return {.name = name,
          .role = role,
          .reason = DeclineReason::kLowRankDown,
          .why = "down-projection to a low rank: no heads on its rows"};
}

}  // namespace headwise
