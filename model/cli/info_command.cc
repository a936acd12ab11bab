// muse info: lists the presets, or says what a preset, a configuration or a run consists of.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/proto/message_fields.h"
#include "model/cli/commands.h"
#include "model/cli/config_source.h"
#include "model/cli/model_tables.h"
#include "model/cli/paths.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/hf/model_source.h"
#include "model/presets/presets.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

absl::Status ListAllPresets() {
  for (const Preset& preset : ListPresets()) {
    std::printf("%-20s %s\n", preset.name.c_str(), preset.summary.c_str());
  }
  std::printf("\nmuse info NAME says more; muse train --preset NAME trains one\n");
  return absl::OkStatus();
}

// A run, checkpoint or Hugging Face folder, a file, or a preset's name, tried in this order.
absl::StatusOr<RunConfig> LoadSubject(const std::string& subject) {
  std::error_code error;
  if (std::filesystem::is_directory(subject, error)) {
    HW_ASSIGN_OR_RETURN(const ModelSource source, ModelSource::Open(subject));
    std::printf("%s\n\n", source.Describe().c_str());
    return source.config();
  }
  ConfigFlags flags;
  (std::filesystem::exists(subject, error) ? flags.config_file : flags.preset) = subject;
  return LoadBaseConfig(flags, RunConfig());
}

void PrintLayers(const ModelConfig& model) {
  std::printf("layers      ");
  for (std::int64_t l = 0; l < model.num_layers(); ++l) {
    const std::int64_t window = LayerWindow(model, l);
    std::printf("%s%s %s", l > 0 ? ", " : "", LayerUsesRope(model, l) ? "RoPE" : "NoPE",
                window > 0 ? absl::StrCat("window ", window).c_str() : "global");
  }
  std::printf("\n");
}

absl::Status Info(const std::string& subject, bool print_config) {
  if (subject.empty()) return ListAllPresets();
  HW_ASSIGN_OR_RETURN(RunConfig config, LoadSubject(subject));
  config = ResolveRunConfig(config);
  HW_RETURN_IF_ERROR(ValidateModelConfig(config.model()));
  if (print_config) {
    std::fputs(PrintAllFields(config).c_str(), stdout);
    return absl::OkStatus();
  }
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> meta,
                      Decoder::Create(config.model(), {.device = Device::kMeta}));
  HW_ASSIGN_OR_RETURN(const std::vector<ParameterAssignment> assignments,
                      AssignOptimizerGroups(config.optimizer(), meta->parameters()));
  std::printf("%s\n%s\n%s\n", CompactConfig(config).c_str(), ParameterTable(assignments).c_str(),
              MemoryTable(config, assignments).c_str());
  PrintLayers(config.model());
  const std::int64_t sequence = config.training().sequence_length();
  std::printf("FLOPs       %s per token, forward and backward, at %d tokens\n",
              FormatCount(TrainingFlopsPerToken(config.model(), sequence)).c_str(),
              static_cast<int>(sequence));
  return absl::OkStatus();
}

}  // namespace

void AddInfoCommand(CLI::App& app, Action* action) {
  auto subject = std::make_shared<std::string>();
  auto print_config = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "info",
      "Lists the presets, or describes a preset, a configuration file, a run directory or a "
      "Hugging Face folder");
  command->add_option("subject", *subject, "A preset's name, a configuration file or a directory")
      ->type_name("[NAME|FILE|DIR]");
  command->add_flag("--print-config", *print_config, "Prints the resolved configuration instead");
  command->callback([subject, print_config, action] {
    *action = [subject, print_config] { return Info(*subject, *print_config); };
  });
}

}  // namespace headwise
