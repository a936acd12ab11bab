// hf_config: config.json of a Hugging Face folder as a ModelConfig, and back.
//
//   HW_ASSIGN_OR_RETURN(const HfModel hf, ParseHfConfig(*ReadWholeFile("llama/config.json")));
//   hf.family->model_type;   // "llama"
//   hf.model;                // what the decoder is; packing INTERLEAVED_PER_KV_GROUP
//
// Families: llama, mistral, qwen3, qwen3_moe, gpt_oss, muse_glimmer, muse_spark. Every field of the file is
// read, or known to change no number, or an error that names it; values that contradict each other
// are errors. docs/model_families.md has the fields, and what they mean. Errors do not name the
// file.
#ifndef HEADWISE_MODEL_HF_HF_CONFIG_H_
#define HEADWISE_MODEL_HF_HF_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/proto/config.pb.h"
#include "model/hf/family.h"

namespace headwise {

struct HfModel {
  const HfFamily* family = nullptr;  // lives for ever
  ModelConfig model;                 // valid and resolved; its name is the model_type
};

// kDataLoss: the first thing that is wrong. Works on untrusted text.
absl::StatusOr<HfModel> ParseHfConfig(absl::string_view text);

// A configuration for a model that was made here: of the first family that expresses it exactly
// (parsed again, it is SameModel()). kFailedPrecondition names the field that no family has.
absl::StatusOr<std::string> HfConfigOf(const ModelConfig& model);

// `text`, which ParseHfConfig() accepts, brought up to date: as it is where it already says what
// `model` is; otherwise with those fields of the decoder replaced that say another thing.
// kFailedPrecondition names the field of the model that the family does not have.
absl::StatusOr<std::string> UpdateHfConfig(absl::string_view text, const ModelConfig& model);

// The first field in which two models differ, as "attention.rope.theta: 10000 and 500000"; empty
// if they compute the same from the same weights. Names, initial weights, the order of packed rows
// and where bf16 rounds are no differences.
std::string ModelDifference(const ModelConfig& a, const ModelConfig& b);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_HF_CONFIG_H_
