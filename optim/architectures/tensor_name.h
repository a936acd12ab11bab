// TensorName: a tensor's name as a path of components, and matching it against a module's path.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_TENSOR_NAME_H_
#define HEADWISE_OPTIM_ARCHITECTURES_TENSOR_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "optim/parameter.h"

namespace headwise {

// Views into the name they were made from.
using TensorPath = std::vector<absl::string_view>;

// "a.b.weight" -> {"a", "b", "weight"}.
TensorPath SplitTensorName(absl::string_view name);

struct ModuleMatch {
  std::size_t components = 0;  // of the name that make up the module's path
  std::int64_t layer = -1;     // the first number in it
};

// The name's beginning against "layers.*.self_attn", where '*' matches a number. At least one
// component must be left over.
std::optional<ModuleMatch> MatchModule(absl::string_view module_path, const TensorPath& name);

// Whether the last module of the name is called as projections onto heads are: q_proj,
// query_key_value, in_proj_weight, ... Used only to choose the reason for not cutting it.
bool LooksLikeProjection(const TensorPath& name);

// What a weight outside of known attention modules is, by the usual names; nullopt if they do not
// tell. A vector is a norm or a bias.
std::optional<ParameterRole> UsualRole(const TensorPath& name, std::size_t rank);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_TENSOR_NAME_H_
