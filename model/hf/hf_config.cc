#include "model/hf/hf_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "core/io/json_text.h"
#include "core/proto/message_fields.h"
#include "model/config.h"
#include "model/hf/common_fields.h"
#include "model/hf/layer_pattern.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

absl::StatusOr<json> ParseDocument(absl::string_view text) {
  absl::StatusOr<json> document = ParseJsonObject(text);
  if (!document.ok()) return absl::DataLossError(document.status().message());
  return document;
}

absl::StatusOr<const HfFamily*> FamilyOf(const json& document) {
  std::vector<std::string> names;
  for (const HfFamily& family : HfFamilies()) names.push_back(family.model_type);
  std::string known;
  for (const std::string& name : names) absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  const auto it = document.find("model_type");
  if (it == document.end() || !it->is_string()) {
    return absl::DataLossError(
        absl::StrCat("model_type: expected one of ", known, ", found ",
                     it == document.end() ? "none" : "something else than a string"));
  }
  const std::string& type = it->get_ref<const std::string&>();
  for (const HfFamily& family : HfFamilies()) {
    if (family.model_type == type) return &family;
  }
  const std::string shown = type.substr(0, 40);
  return absl::DataLossError(absl::StrCat("model_type: '", absl::CEscape(shown),
                                          "' is not supported; expected one of ", known,
                                          DidYouMean(shown, names)));
}

// Reads the decoder's fields, which lie in `document` itself or in its section. *read, if not null,
// gets their names.
absl::StatusOr<ModelConfig> Read(const HfFamily& family, const json& document,
                                 std::set<std::string>* read) {
  ModelConfig model;
  ConfigFields top(document);
  std::optional<ConfigFields> section = top;
  if (!family.section.empty()) {
    RefuseQuantised(top);
    section = top.Section(family.section);
    if (!section.has_value()) {
      top.Fail(family.section, "expected an object, found none");
      return top.status();
    }
    IgnoreNoEffect(top);
    top.Ignore(family.top_fields);
  }
  family.read(*section, &model);
  section->RefuseOthers();
  if (!family.section.empty()) {
    if (top.Flag("tie_word_embeddings", model.tied_head()) != model.tied_head()) {
      top.Fail("tie_word_embeddings", absl::StrCat("expected that of ", family.section, ", found ",
                                                   top.Show("tie_word_embeddings")));
    }
    top.RefuseOthers();
  }
  HW_RETURN_IF_ERROR(section->status());
  model.set_name(family.model_type);
  model = ResolveModelConfig(std::move(model));
  if (const absl::Status status = ValidateModelConfig(model); !status.ok()) {
    return absl::DataLossError(absl::StrCat("says ", status.message()));
  }
  if (read != nullptr) *read = section->read_names();
  return model;
}

// What a model computes, in one form: settings without effect cleared.
ModelConfig Comparable(const ModelConfig& config) {
  ModelConfig model = ResolveModelConfig(config);
  model.clear_name();
  model.clear_init();
  AttentionConfig& a = *model.mutable_attention();
  a.clear_packing();
  a.clear_rounding();
  a.clear_unfused_qkv();
  if (a.head_norm() == HEAD_NORM_NONE) a.clear_head_norm_epsilon();
  if (a.rope().scaling().kind() == ROPE_UNSCALED) a.mutable_rope()->clear_scaling();
  // The shortest pattern. It cannot fail: the layers are those of a ModelConfig.
  (void)SetLayers(LayersOf(config), &a);
  MoeConfig none;
  MoeConfig& expert_norms = model.ffn().has_moe() ? *model.mutable_ffn()->mutable_moe() : none;
  for (NormConfig* norm :
       {model.mutable_embedding_norm(), model.mutable_attention_norm(),
        model.mutable_post_attention_norm(), model.mutable_ffn_norm(),
        model.mutable_post_ffn_norm(), model.mutable_final_norm(),
        expert_norms.mutable_pre_expert_norm(), expert_norms.mutable_post_expert_norm()}) {
    norm->clear_initial_weight();
    if (norm->style() != RMS_GAIN_CENTERED && norm->style() != RMS_INPUT_SCALED) {
      norm->clear_centre();
    }
    if (norm->style() == NORM_ABSENT) norm->clear_epsilon();
  }
  if (model.ffn().has_moe() && model.ffn().moe().balancing() != BALANCING_AUXILIARY_LOSS) {
    model.mutable_ffn()->mutable_moe()->clear_auxiliary_loss_weight();
  }
  return model;
}

std::map<std::string, std::string> Values(const ModelConfig& model) {
  std::map<std::string, std::string> values;
  for (const auto& [path, value] : FieldValues(Comparable(model))) values[path] = value;
  return values;
}

// (path, "A and B") of every field in which they differ.
std::vector<std::pair<std::string, std::string>> Differences(const ModelConfig& a,
                                                             const ModelConfig& b) {
  const std::map<std::string, std::string> left = Values(a), right = Values(b);
  std::vector<std::pair<std::string, std::string>> differences;
  for (const auto& [path, value] : left) {
    const auto it = right.find(path);
    const std::string other = it == right.end() ? "none" : it->second;
    if (value != other) differences.emplace_back(path, absl::StrCat(value, " and ", other));
  }
  for (const auto& [path, value] : right) {
    if (left.count(path) == 0) differences.emplace_back(path, absl::StrCat("none and ", value));
  }
  return differences;
}

json& SectionOf(const HfFamily& family, json* document) {
  json& section = family.section.empty() ? *document : (*document)[family.section];
  if (section.is_null()) section = json::object();
  return section;
}

// Writes the decoder's fields into a document, in place of those that were `read`.
void Replace(const HfFamily& family, const std::set<std::string>& read, const ModelConfig& model,
             json* document) {
  json fields = json::object(), top = json::object();
  family.write(model, &fields, &top);
  json& section = SectionOf(family, document);
  for (const std::string& name : read) section.erase(name);
  for (const auto& [name, value] : fields.items()) {
    // Fields without effect stay as they were.
    if (read.count(name) != 0 || !section.contains(name)) section[name] = value;
  }
  // What lies beside the section is not the decoder's: a document that has it keeps it.
  for (const auto& [name, value] : top.items()) {
    if (!document->contains(name)) (*document)[name] = value;
  }
}

bool IsRope(absl::string_view name) {
  return absl::StartsWith(name, "rope_") || name == "original_max_position_embeddings";
}

// As few fields as it takes to turn the model `before` into `after`; RoPE's go together.
void Change(const HfFamily& family, const ModelConfig& before, const ModelConfig& after,
            json* document) {
  json old_fields = json::object(), fields = json::object(), top = json::object();
  family.write(before, &old_fields, &top);
  family.write(after, &fields, &top);
  json& section = SectionOf(family, document);
  bool rope = false;
  for (const auto& [name, value] : fields.items()) {
    if (old_fields[name] == value) continue;
    if (IsRope(name)) {
      rope = true;
    } else {
      section[name] = value;
    }
  }
  if (!rope) return;
  std::vector<std::string> old_names;
  for (const auto& [name, value] : section.items()) {
    if (IsRope(name)) old_names.push_back(name);
  }
  for (const std::string& name : old_names) section.erase(name);
  for (const auto& [name, value] : fields.items()) {
    if (IsRope(name)) section[name] = value;
  }
}

// As transformers prints it.
std::string Print(const json& document) {
  return document.dump(2, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace) + "\n";
}

// What keeps `family` from expressing `model`; empty if it does. *text gets the configuration.
std::vector<std::pair<std::string, std::string>> Express(const HfFamily& family,
                                                         const ModelConfig& model,
                                                         std::string* text) {
  json document = {{"model_type", family.model_type},
                   {"architectures", {family.architecture}},
                   {"torch_dtype", "float32"},
                   {"use_cache", true}};
  Replace(family, {}, model, &document);
  const absl::StatusOr<ModelConfig> again = Read(family, document, nullptr);
  if (!again.ok()) return {{"", std::string(again.status().message())}};
  *text = Print(document);
  return Differences(model, *again);
}

}  // namespace

absl::StatusOr<HfModel> ParseHfConfig(absl::string_view text) {
  HW_ASSIGN_OR_RETURN(const json document, ParseDocument(text));
  HW_ASSIGN_OR_RETURN(const HfFamily* family, FamilyOf(document));
  HW_ASSIGN_OR_RETURN(ModelConfig model, Read(*family, document, nullptr));
  return HfModel{.family = family, .model = std::move(model)};
}

std::string ModelDifference(const ModelConfig& a, const ModelConfig& b) {
  const auto differences = Differences(a, b);
  if (differences.empty()) return "";
  return absl::StrCat(differences[0].first, ": ", differences[0].second);
}

absl::StatusOr<std::string> HfConfigOf(const ModelConfig& config) {
  const ModelConfig model = ResolveModelConfig(config);
  std::map<std::string, int> without;  // field -> families that differ there
  int families = 0;                    // that can say a model of this kind at all
  std::vector<std::pair<std::string, std::string>> closest;
  std::string closest_type;
  for (const HfFamily& family : HfFamilies()) {
    std::string text;
    const auto differences = Express(family, model, &text);
    if (differences.empty()) return text;
    if (differences[0].first.empty()) continue;
    ++families;
    for (const auto& [field, values] : differences) ++without[field];
    if (closest.empty() || differences.size() < closest.size()) {
      closest = differences;
      closest_type = family.model_type;
    }
  }
  constexpr char kNone[] = "no family of Hugging Face that is known here has this model";
  if (closest.empty()) return absl::FailedPreconditionError(kNone);
  // Rather a field in which all of them differ than one of the closest alone.
  std::pair<std::string, std::string> blamed = closest[0];
  for (const auto& difference : closest) {
    if (without[difference.first] < families) continue;
    blamed = difference;
    break;
  }
  return absl::FailedPreconditionError(absl::StrCat(kNone, "; the closest, ", closest_type,
                                                    ", differs in model.", blamed.first, ": ",
                                                    blamed.second));
}

absl::StatusOr<std::string> UpdateHfConfig(absl::string_view text, const ModelConfig& model) {
  HW_ASSIGN_OR_RETURN(json document, ParseDocument(text));
  HW_ASSIGN_OR_RETURN(const HfFamily* family, FamilyOf(document));
  std::set<std::string> read;
  HW_ASSIGN_OR_RETURN(const ModelConfig before, Read(*family, document, &read));
  if (Differences(before, model).empty()) return std::string(text);
  const ModelConfig resolved = ResolveModelConfig(model);
  json changed = document;
  Change(*family, before, resolved, &changed);
  const absl::StatusOr<ModelConfig> enough = Read(*family, changed, nullptr);
  if (enough.ok() && Differences(model, *enough).empty()) return Print(changed);
  // Fields that the family writes otherwise stood in the way.
  Replace(*family, read, resolved, &document);
  HW_ASSIGN_OR_RETURN(const ModelConfig after, Read(*family, document, nullptr));
  if (const auto differences = Differences(model, after); !differences.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("model_type ", family->model_type,
                                                      " cannot say model.", differences[0].first,
                                                      ": ", differences[0].second));
  }
  return Print(document);
}

}  // namespace headwise
