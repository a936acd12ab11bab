// ConfigFields: one object of a config.json, read so that no field is overlooked.
//
//   ConfigFields fields(document);
//   model->set_dim(fields.Count("hidden_size", 4096));
//   fields.Expect("attention_dropout", 0.0, "there is no dropout here");
//   fields.Ignore({"use_cache", "transformers_version"});
//   fields.RefuseOthers();
//   return fields.status();   // "hidden_size: expected a positive integer, found \"big\""
//
// Every field that is asked for, by whatever function, counts as known; RefuseOthers() makes any
// other field an error. The first error is kept, and reading goes on with harmless values, so that
// a family can be written straight down. A section (an object within) shares its parent's error,
// and its fields are called "text_config.hidden_size".
//
// `absent` is what transformers takes when the field is not there; null is not the same, and is an
// error where nothing else is said.
#ifndef HEADWISE_MODEL_HF_CONFIG_FIELDS_H_
#define HEADWISE_MODEL_HF_CONFIG_FIELDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

class ConfigFields {
 public:
  // A view: valid as long as `object`, which must be a JSON object (checked).
  explicit ConfigFields(const nlohmann::json& object);

  // There, null or not.
  bool Has(const std::string& name);
  bool HasValue(const std::string& name);  // there, and not null
  // From 1 to 2^31.
  std::int64_t Count(const std::string& name, std::int64_t absent);
  // Absent or null: nullopt.
  std::optional<std::int64_t> MaybeCount(const std::string& name);
  // Finite in single precision.
  double Number(const std::string& name, double absent);
  std::optional<double> MaybeNumber(const std::string& name);
  // > 0.
  double Positive(const std::string& name, double absent);
  bool Flag(const std::string& name, bool absent);
  std::string Word(const std::string& name, const std::string& absent);
  // Lists. Absent or null: nullopt.
  std::optional<std::vector<std::string>> Words(const std::string& name);
  std::optional<std::vector<double>> Numbers(const std::string& name);
  // An object. Absent or null: nullopt.
  std::optional<ConfigFields> Section(const std::string& name);
  // Whether the value of a field is an object.
  bool IsObject(const std::string& name);

  // An error unless the field is absent, null or this number (false counts as 0): it would change
  // what the model computes, and nothing here computes that. `why` ends the message.
  void Expect(const std::string& name, double value, const std::string& why);
  // An error unless the field is absent or null.
  void Refuse(const std::string& name, const std::string& why);
  // Fields that do not change what the model computes.
  void Ignore(absl::Span<const char* const> names);
  // The first field that nobody asked for is an error, which names the nearest that was.
  void RefuseOthers();

  // Keeps "name: problem", if it is the first error.
  void Fail(const std::string& name, const std::string& problem);
  // The value as it stands, shortened: for messages.
  std::string Show(const std::string& name) const;
  const absl::Status& status() const { return *status_; }

  // The names that were read, without those that were ignored: what an update replaces.
  const std::set<std::string>& read_names() const { return read_; }

 private:
  ConfigFields(const nlohmann::json& object, std::string prefix,
               std::shared_ptr<absl::Status> status);
  // Null if absent; counts the name as read.
  const nlohmann::json* Find(const std::string& name);
  const nlohmann::json* Peek(const std::string& name) const;

  const nlohmann::json* object_;
  std::string prefix_;  // "" or "text_config."
  std::shared_ptr<absl::Status> status_;
  std::set<std::string> read_, ignored_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_CONFIG_FIELDS_H_
