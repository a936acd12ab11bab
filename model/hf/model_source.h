// ModelSource: a model on disk, whatever its form: a run, one checkpoint of it, or a Hugging Face
// folder.
//
//   HW_ASSIGN_OR_RETURN(const ModelSource source, ModelSource::Open("llama"));
//   HW_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(source.config().model(), options));
//   HW_RETURN_IF_ERROR(source.LoadWeights(source.config().model(), decoder->parameters()));
//
// Copies share the open files.
#ifndef HEADWISE_MODEL_HF_MODEL_SOURCE_H_
#define HEADWISE_MODEL_HF_MODEL_SOURCE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "model/hf/hf_folder.h"
#include "model/train/checkpoint.h"
#include "optim/parameter.h"

namespace headwise {

// The forms that a command takes.
enum class ModelForm { kAny, kNative, kHuggingFace };

// How a model from outside is trained where nobody says: as the preset muse_demo, in sequences that
// it can take. Bytes, if the vocabulary has them.
RunConfig RunConfigOf(const ModelConfig& model);

class ModelSource {
 public:
  // Errors as OpenRunOrCheckpoint() and HfFolder::Open(); a form that is not wanted is one too.
  static absl::StatusOr<ModelSource> Open(const std::string& path,
                                          ModelForm form = ModelForm::kAny);

  // Resolved; of a folder, RunConfigOf().
  const RunConfig& config() const { return config_; }
  // "runs/demo/step-400, step 400", "llama, model_type llama".
  std::string Describe() const;
  // Newer checkpoints of the run that are broken, each with the reason.
  const std::vector<std::string>& rejected() const;
  // Null for a checkpoint.
  const HfFolder* folder() const { return folder_.has_value() ? &*folder_ : nullptr; }

  // Fills the parameters (fp32) of a decoder of `model`. kDataLoss if they are not those that lie
  // there; kInvalidArgument if `model` packs its QKV projections otherwise than a checkpoint (a
  // folder's are packed as `model` wants them).
  absl::Status LoadWeights(const ModelConfig& model,
                           const std::vector<Parameter*>& parameters) const;

 private:
  ModelSource() = default;

  RunConfig config_;
  std::optional<HfFolder> folder_;
  std::optional<FoundCheckpoint> checkpoint_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_MODEL_SOURCE_H_
