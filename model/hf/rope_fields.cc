#include "model/hf/rope_fields.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr char kOriginal[] = "original_max_position_embeddings";

// Of YaRN's attention factor.
double Magnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double Factor(ConfigFields& fields) {
  if (!fields.HasValue("factor")) fields.Fail("factor", "expected a number >= 1, found none");
  const double factor = fields.MaybeNumber("factor").value_or(1);
  if (factor < 1) {
    fields.Fail("factor", absl::StrCat("expected a number >= 1, found ", fields.Show("factor")));
  }
  return factor;
}

double PositiveOr(ConfigFields& fields, const char* name, double otherwise) {
  const double value = fields.MaybeNumber(name).value_or(0);
  if (value < 0) {
    fields.Fail(name, absl::StrCat("expected a number > 0, found ", fields.Show(name)));
  }
  return value > 0 ? value : otherwise;
}

void ReadYarn(ConfigFields& fields, std::int64_t max_position, RopeScaling* scaling) {
  const double original = static_cast<double>(scaling->original_max_position());
  scaling->set_factor(fields.HasValue("factor") || max_position < original
                          ? Factor(fields)
                          : static_cast<double>(max_position) / original);
  scaling->set_beta_fast(PositiveOr(fields, "beta_fast", 32));
  scaling->set_beta_slow(PositiveOr(fields, "beta_slow", 1));
  scaling->set_exact_ramp(!fields.Flag("truncate", true));
  const double numerator = PositiveOr(fields, "mscale", 0);
  const double denominator = PositiveOr(fields, "mscale_all_dim", 0);
  const double otherwise =
      numerator > 0 && denominator > 0
          ? Magnitude(scaling->factor(), numerator) / Magnitude(scaling->factor(), denominator)
          : Magnitude(scaling->factor(), 1);
  // Unlike the others, transformers takes a 0 here as it is.
  const double factor = fields.MaybeNumber("attention_factor").value_or(otherwise);
  if (!(factor > 0)) {
    fields.Fail("attention_factor",
                absl::StrCat("expected a number > 0, found ", fields.Show("attention_factor")));
  }
  scaling->set_attention_factor(factor);
}

// `original` is what the top level says, which comes before what the section says.
void ReadScaling(ConfigFields& fields, std::optional<std::int64_t> original,
                 std::int64_t max_position, RopeConfig* rope) {
  // A section for each kind of layer, of which the models here read one only.
  for (const char* name : {"full_attention", "sliding_attention"}) {
    if (fields.IsObject(name)) {
      fields.Fail(name, "rotary parameters by kind of layer are not supported; expected one set");
    }
  }
  const std::string older = fields.Word("type", "default");
  const std::string type = fields.Word("rope_type", older);
  RopeScaling* scaling = rope->mutable_scaling();
  const auto read_original = [&] {
    const std::optional<std::int64_t> inner = fields.MaybeCount(kOriginal);
    scaling->set_original_max_position(original.value_or(inner.value_or(max_position)));
  };
  if (type == "default") {
    rope->clear_scaling();
  } else if (type == "linear") {
    scaling->set_kind(ROPE_LINEAR);
    scaling->set_factor(Factor(fields));
  } else if (type == "llama3") {
    scaling->set_kind(ROPE_LLAMA3);
    scaling->set_factor(Factor(fields));
    read_original();
    for (const char* name : {"low_freq_factor", "high_freq_factor"}) {
      if (!fields.HasValue(name)) fields.Fail(name, "expected a number, found none");
    }
    scaling->set_low_freq_factor(PositiveOr(fields, "low_freq_factor", 1));
    scaling->set_high_freq_factor(PositiveOr(fields, "high_freq_factor", 4));
  } else if (type == "yarn") {
    scaling->set_kind(ROPE_YARN);
    read_original();
    ReadYarn(fields, max_position, scaling);
  } else {
    fields.Fail(fields.Has("rope_type") ? "rope_type" : "type",
                absl::StrCat("'", absl::CEscape(type.substr(0, 40)),
                             "' is not supported; expected default, linear, llama3 or yarn"));
  }
  fields.Expect("partial_rotary_factor", 1, "these models rotate whole heads");
}

void WriteScaling(const RopeConfig& rope, json* out) {
  const RopeScaling& s = rope.scaling();
  switch (s.kind()) {
    case ROPE_LINEAR:
      *out = {{"rope_type", "linear"}, {"factor", s.factor()}};
      return;
    case ROPE_LLAMA3:
      *out = {{"rope_type", "llama3"},
              {"factor", s.factor()},
              {"low_freq_factor", s.low_freq_factor()},
              {"high_freq_factor", s.high_freq_factor()},
              {kOriginal, s.original_max_position()}};
      return;
    case ROPE_YARN:
      *out = {{"rope_type", "yarn"},         {"factor", s.factor()},
              {"beta_fast", s.beta_fast()},  {"beta_slow", s.beta_slow()},
              {"truncate", !s.exact_ramp()}, {kOriginal, s.original_max_position()}};
      // Said only where it is not what the factor gives.
      if (s.attention_factor() != Magnitude(s.factor(), 1)) {
        (*out)["attention_factor"] = s.attention_factor();
      }
      return;
    default:
      *out = {{"rope_type", "default"}};
  }
}

}  // namespace

void ReadRope(ConfigFields& fields, const RopeDefaults& defaults, std::int64_t max_position,
              RopeConfig* rope) {
  const std::optional<std::int64_t> original = fields.MaybeCount(kOriginal);
  fields.Expect("partial_rotary_factor", 1, "these models rotate whole heads");
  std::optional<double> theta = fields.MaybeNumber("rope_theta");
  if (theta.has_value() && *theta <= 0) {
    fields.Fail("rope_theta",
                absl::StrCat("expected a number > 0, found ", fields.Show("rope_theta")));
  }
  std::optional<ConfigFields> parameters = fields.Section("rope_parameters");
  std::optional<ConfigFields> scaling = fields.Section("rope_scaling");
  if (parameters.has_value() && scaling.has_value()) {
    fields.Fail("rope_scaling", "found beside rope_parameters; expected one of them");
  }
  std::optional<ConfigFields>& section = parameters.has_value() ? parameters : scaling;
  if (section.has_value()) {
    if (const std::optional<double> inner = section->MaybeNumber("rope_theta")) {
      if (*inner <= 0 || (theta.has_value() && *theta != *inner)) {
        section->Fail("rope_theta",
                      absl::StrCat("expected ",
                                   *inner <= 0 ? "a number > 0" : "the rope_theta of the top level",
                                   ", found ", section->Show("rope_theta")));
      }
      theta = inner;
    }
    ReadScaling(*section, original, max_position, rope);
    section->RefuseOthers();
  } else if (defaults.scaling.has_value()) {
    *rope->mutable_scaling() = *defaults.scaling;
  }
  rope->set_theta(theta.value_or(defaults.theta));
}

void WriteOldRope(const RopeConfig& rope, bool say_default, json* fields) {
  (*fields)["rope_theta"] = rope.theta();
  (*fields)["rope_scaling"] = nullptr;
  if (rope.scaling().kind() != ROPE_UNSCALED || say_default) {
    WriteScaling(rope, &(*fields)["rope_scaling"]);
  }
}

void WriteNewRope(const RopeConfig& rope, json* fields) {
  json& parameters = (*fields)["rope_parameters"];
  WriteScaling(rope, &parameters);
  parameters["rope_theta"] = rope.theta();
}

}  // namespace headwise
