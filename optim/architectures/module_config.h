// ModuleConfig: what a rule reads about one attention module. Remembers which fields it read, for
// the explanation, and the first thing that was wrong, so that a rule can be written straight down:
//
//   const std::int64_t heads = module.Count({"num_attention_heads"});
//   const std::int64_t width = module.Count({"hidden_size"});
//   const std::int64_t head_dim = module.Quotient("hidden_size", width, "heads", heads);
//
// After a failure every further number is 1, and what the rule makes of them is not used.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_MODULE_CONFIG_H_
#define HEADWISE_OPTIM_ARCHITECTURES_MODULE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "optim/architectures/config_json.h"
#include "optim/architectures/decline_reason.h"
#include "optim/architectures/resolve_options.h"

namespace headwise {

// The names that a field is known by: module.Count({"n_head", "num_attention_heads"}).
using FieldNames = absl::Span<const char* const>;

// Why something is not cut into heads.
struct Declined {
  DeclineReason reason;
  std::string explanation;
};

class ModuleConfig {
 public:
  // layer: the number in the module's path, -1 if there is none.
  ModuleConfig(ConfigSection section, std::int64_t layer, const ResolveOptions& options)
      : section_(std::move(section)), layer_(layer), options_(options) {}

  const ConfigSection& section() const { return section_; }
  std::int64_t layer() const { return layer_; }
  const ResolveOptions& options() const { return options_; }

  // A positive integer under the first of these names that the section has (some architectures know
  // a field by two names). `otherwise` is the configuration class's default for an absent field; 0
  // if there is none. kNoGeometry if it is absent without a default, null, or no positive integer;
  // kAmbiguous if two names have two values.
  std::int64_t Count(FieldNames names, std::int64_t otherwise = 0);
  // Absent or null: nullopt.
  std::optional<std::int64_t> MaybeCount(FieldNames names);
  // Whether the section has none of the names at all (null is there).
  bool Absent(FieldNames names) const;
  // A boolean; `otherwise` if it is absent or null. kNoGeometry if it is something else.
  bool Flag(const char* name, bool otherwise);
  // Element layer() of a list of words; "" (and kNoGeometry) if there is none.
  std::string LayerWord(const char* list);
  // Element layer() of a list of numbers; nullopt if there is no list, kNoGeometry if it is short.
  std::optional<std::int64_t> LayerCount(const char* list);

  // dividend / divisor; kNoGeometry if that is no integer.
  std::int64_t Quotient(const char* dividend_name, std::int64_t dividend, const char* divisor_name,
                        std::int64_t divisor);

  void Decline(DeclineReason reason, std::string explanation);
  const std::optional<Declined>& declined() const { return declined_; }

  // "num_attention_heads=32, head_dim=128 by default".
  const std::string& fields() const { return fields_; }

 private:
  // The name of a field with its section, for messages.
  std::string Field(absl::string_view name) const;
  void Remember(const std::string& text);
  // `value` as a positive integer, else 1 and kNoGeometry.
  std::int64_t ToCount(const std::string& field, const ConfigValue& value);

  ConfigSection section_;
  std::int64_t layer_;
  ResolveOptions options_;
  std::string fields_;
  std::optional<Declined> declined_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_MODULE_CONFIG_H_
