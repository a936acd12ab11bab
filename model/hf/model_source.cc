#include "model/hf/model_source.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/proto/config.pb.h"
#include "model/presets/presets.h"
#include "model/train/run_config.h"

namespace headwise {

RunConfig RunConfigOf(const ModelConfig& model) {
  absl::StatusOr<RunConfig> preset = LoadPreset("muse_demo");
  HW_CHECK(preset.ok()) << preset.status();
  RunConfig config = *std::move(preset);
  *config.mutable_model() = model;
  TrainingConfig& training = *config.mutable_training();
  const std::int64_t room = model.max_sequence_length();
  training.set_sequence_length(std::min(training.sequence_length(), room));
  // A byte model's sample begins with a prompt of some 20 bytes.
  training.set_sample_tokens(std::clamp<std::int64_t>(room - 32, 0, training.sample_tokens()));
  if (model.ffn().moe().balancing() == BALANCING_BIAS) {
    config.mutable_optimizer()->set_balancing_rate(0.001);  // DeepSeek-V3's, arXiv:2412.19437
  }
  config.mutable_data()->set_format(model.vocab_size() >= 256 ? BYTES : UINT16);
  return ResolveRunConfig(std::move(config));
}

absl::StatusOr<ModelSource> ModelSource::Open(const std::string& path, ModelForm form) {
  ModelSource source;
  const bool is_folder = HfFolder::Is(path);
  if (form == ModelForm::kNative && is_folder) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": expected a run or checkpoint, found a Hugging Face folder; ", "try --hf ", path));
  }
  if (form == ModelForm::kHuggingFace || (form == ModelForm::kAny && is_folder)) {
    HW_ASSIGN_OR_RETURN(source.folder_, HfFolder::Open(path));
    source.config_ = RunConfigOf(source.folder_->model());
    return source;
  }
  HW_ASSIGN_OR_RETURN(source.checkpoint_, OpenRunOrCheckpoint(path));
  source.config_ = source.checkpoint_->state.config();
  return source;
}

std::string ModelSource::Describe() const {
  if (folder_.has_value()) {
    std::string text =
        absl::StrCat(folder_->directory(), ", model_type ", folder_->family().model_type);
    if (!folder_->not_run().empty()) {
      absl::StrAppend(&text, ", without ", folder_->not_run().size(), " tensors that are not run (",
                      folder_->not_run()[0], ", ...)");
    }
    return text;
  }
  return absl::StrCat(checkpoint_->directory, ", step ", checkpoint_->state.step());
}

const std::vector<std::string>& ModelSource::rejected() const {
  static const auto* const none = new std::vector<std::string>;
  return checkpoint_.has_value() ? checkpoint_->rejected : *none;
}

absl::Status ModelSource::LoadWeights(const ModelConfig& model,
                                      const std::vector<Parameter*>& parameters) const {
  if (folder_.has_value()) return folder_->LoadWeights(model, parameters);
  // The rows of wqkv are copied as they lie there; their number says nothing of their order.
  const QkvPacking packing = config_.model().attention().packing();
  if (model.attention().packing() != packing) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.attention.packing: expected ", QkvPacking_Name(packing), ", as in ",
        checkpoint_->directory, ", found ", QkvPacking_Name(model.attention().packing()),
        "; try --set model.attention.packing=", QkvPacking_Name(packing)));
  }
  return headwise::LoadWeights(*checkpoint_, parameters);
}

}  // namespace headwise
