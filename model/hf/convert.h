// convert: Hugging Face folders as checkpoints of ours, and back, bit by bit.
//
//   HW_ASSIGN_OR_RETURN(const HfFolder folder, HfFolder::Open("llama"));
//   HW_RETURN_IF_ERROR(HfToNative(folder, "llama-native", config, {}).status());
//   HW_RETURN_IF_ERROR(NativeToHf("llama-native", "llama-again", {}).status());
//
// A native checkpoint (model/train/checkpoint.h) of a converted folder holds, besides the weights
// in fp32:
//
//   unused.safetensors   tensors that the decoder does not run, as they were
//   hf/config.json       as it was; so are hf/tokenizer.json, hf/generation_config.json, ...
//   hf/dtypes.json       {"model.norm.weight": "BF16", ...}: the types of the folder's tensors
//
// On the way back these make the folder whole: every tensor in its own type with its own bytes, as
// long as the weights are those that came. A checkpoint without them, of a model that was trained
// here, becomes the first family that expresses it, in fp32.
//
// A directory appears whole or not at all; an existing one is refused. One tensor at a time is in
// memory, with what it is made of.
#ifndef HEADWISE_MODEL_HF_CONVERT_H_
#define HEADWISE_MODEL_HF_CONVERT_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "model/hf/hf_folder.h"

namespace headwise {

struct ConvertOptions {
  // Of one file of weights; a larger tensor has a file of its own. > 0.
  std::int64_t max_shard_bytes = 5'000'000'000;
  // Shows progress there, if it is a terminal; may be null.
  std::FILE* progress = nullptr;
};

struct ConvertReport {
  std::string model_type;     // of the Hugging Face side
  std::int64_t tensors = 0;   // written
  std::int64_t not_run = 0;   // of them, carried through
  std::string first_not_run;  // the name of the first
  std::int64_t files = 0;     // of weights
  double bytes = 0, seconds = 0;
};

// `config` is what training from the checkpoint starts with; its model is the folder's (checked).
absl::StatusOr<ConvertReport> HfToNative(const HfFolder& folder, const std::string& to,
                                         const RunConfig& config, const ConvertOptions& options);

// `from` is a run or a checkpoint. kFailedPrecondition if no family expresses its model.
absl::StatusOr<ConvertReport> NativeToHf(const std::string& from, const std::string& to,
                                         const ConvertOptions& options);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_CONVERT_H_
