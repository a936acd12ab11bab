#include "model/cli/model_flags.h"

#include "model/cli/commands.h"

namespace headwise {

void AddHfOption(CLI::App* command, std::string* hf) {
  command
      ->add_option("--hf", *hf,
                   "Hugging Face folder (config.json and safetensors), in place of --run")
      ->check(NotEmpty())
      ->type_name("DIR");
}

absl::StatusOr<ModelSource> OpenRunOrHf(const std::string& run, const std::string& hf) {
  if (run.empty() == hf.empty()) {
    return absl::InvalidArgumentError(run.empty()
                                          ? "--run or --hf: expected one of them, found none"
                                          : "--run and --hf: expected one of them, found both");
  }
  return hf.empty() ? ModelSource::Open(run, ModelForm::kNative)
                    : ModelSource::Open(hf, ModelForm::kHuggingFace);
}

}  // namespace headwise
