// typecheck: is a model's layout on a mesh right, and what does it cost?
//
//   bazel run //tools:typecheck -- --preset muse_spark --mesh dp=4,cp=2,tp=8,ep=32
//   bazel run //tools:typecheck -- --hf DIR --mesh tp=4 --sp --edit 'forward head.in:'
//
// Runs no model and needs no ranks. Exit codes: 0 the layout is right, 1 it is not, 2 a flag or file
// does not read, 3 memory ran out. docs/sharded_layouts.md explains what is printed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "core/io/file_system.h"
#include "model/cli/config_source.h"
#include "model/cli/exit_code.h"
#include "model/cli/paths.h"
#include "model/config.h"
#include "model/hf/hf_config.h"
#include "model/presets/presets.h"
#include "tools/typecheck/json.h"
#include "tools/typecheck/layer_drawing.h"
#include "tools/typecheck/report.h"
#include "tools/typecheck/svg.h"
#include "tools/typecheck/text.h"

namespace headwise::typecheck {
namespace {

constexpr int kExitWrongLayout = 1;
constexpr int kExitUnreadable = 2;
constexpr int kExitFailed = 3;

struct Flags {
  ConfigFlags config;
  std::string hf, mesh, plan, compute, svg;
  std::vector<std::string> edits;
  std::optional<std::int64_t> length, sequences;
  std::int64_t layer = 0;
  bool sp = false, explain = false, json = false, keep_going = false, print_plan = false;
};

// The configuration that the flags name, its model resolved and valid.
absl::StatusOr<RunConfig> LoadConfig(const Flags& flags) {
  const ConfigFlags& source = flags.config;
  const int named = !source.preset.empty() + !source.config_file.empty() + !flags.hf.empty();
  if (named != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--preset, --config and --hf: expected one of them, found ", named,
                     named == 0 ? "; try --preset muse_spark" : ""));
  }
  RunConfig config;
  if (!flags.hf.empty()) {
    const std::string path =
        std::filesystem::is_directory(flags.hf) ? flags.hf + "/config.json" : flags.hf;
    HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
    const auto hf = ParseHfConfig(text);
    if (!hf.ok()) return absl::DataLossError(absl::StrCat(path, ": ", hf.status().message()));
    HW_ASSIGN_OR_RETURN(config, LoadPreset("muse_demo"));
    config.clear_training();
    config.mutable_training()->set_compute_dtype(BF16);
    *config.mutable_model() = hf->model;
  } else {
    HW_ASSIGN_OR_RETURN(config, LoadBaseConfig(source, RunConfig()));
  }
  HW_RETURN_IF_ERROR(ApplySettings(source, &config));
  *config.mutable_model() = ResolveModelConfig(config.model());
  HW_RETURN_IF_ERROR(ValidateModelConfig(config.model()));
  return config;
}

absl::StatusOr<CheckRequest> RequestOf(const Flags& flags) {
  HW_ASSIGN_OR_RETURN(const RunConfig config, LoadConfig(flags));
  CheckRequest request = {
      .model = config.model(), .sequence_parallel = flags.sp, .optimizer = config.optimizer()};
  HW_ASSIGN_OR_RETURN(request.mesh, Mesh::Parse(flags.mesh));
  if (!flags.plan.empty()) {
    HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.plan));
    auto plan = LayoutPlan::Parse(text);
    if (!plan.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(flags.plan, ": ", plan.status().message()));
    }
    request.plan = *std::move(plan);
  }
  for (const std::string& text : flags.edits) {
    auto edit = PlanEntry::Parse(text);
    if (!edit.ok())
      return absl::InvalidArgumentError(absl::StrCat("--edit: ", edit.status().message()));
    request.edits.push_back(*std::move(edit));
  }
  if (flags.compute.empty()) {
    request.compute = config.training().compute_dtype() == BF16 ? DType::kBF16 : DType::kF32;
  } else if (flags.compute == "fp32" || flags.compute == "bf16") {
    request.compute = flags.compute == "bf16" ? DType::kBF16 : DType::kF32;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--compute: found '", flags.compute, "', expected fp32 or bf16"));
  }
  const std::int64_t trained = config.training().sequence_length();
  request.length = flags.length.value_or(
      std::min<std::int64_t>(trained > 0 ? trained : 4096, config.model().max_sequence_length()));
  if (flags.sequences.has_value()) {
    if (*flags.sequences < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sequences: found ", *flags.sequences, ", expected at least 1"));
    }
    request.sequences = *flags.sequences;
  }
  if (flags.layer < 0 || flags.layer >= config.model().num_layers()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--layer: found ", flags.layer, ", expected 0 to ", config.model().num_layers() - 1));
  }
  return request;
}

absl::Status Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return absl::DataLossError("standard output: cannot write all of it");
  }
  return absl::OkStatus();
}

// Whether the layout is right.
absl::StatusOr<bool> Run(const Flags& flags) {
  HW_RETURN_IF_ERROR(EnterUserDirectory());
  HW_ASSIGN_OR_RETURN(const CheckRequest request, RequestOf(flags));
  if (flags.print_plan) {
    const auto layout = PlannedLayout(request);
    if (layout.ok()) {
      HW_RETURN_IF_ERROR(Print(layout->plan.ToString()));
      return true;
    }
  }
  HW_ASSIGN_OR_RETURN(const Report report,
                      MakeReport(request, {.every_mistake = flags.keep_going}));
  HW_RETURN_IF_ERROR(Print(flags.json ? ReportJson(report, {.explain = flags.explain})
                                      : ReportText(report, {.explain = flags.explain})));
  if (!flags.svg.empty() && report.accepted()) {
    HW_RETURN_IF_ERROR(WriteFileAtomically(
        flags.svg, RenderSvg(DrawLayer(*report.checked->checker, flags.layer))));
  } else if (!flags.svg.empty()) {
    std::fprintf(stderr, "%s: not drawn: the layout is wrong\n", flags.svg.c_str());
  }
  return report.accepted();
}

// As ReportError(), but with the code of this tool.
int Unreadable(const absl::Status& status) {
  ReportError(status);
  return kExitUnreadable;
}

// The parser's message, with the nearest name for a flag that it did not know.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    names.push_back("--" + option->get_single_name());
  }
  std::string hint;
  for (int i = 1; i < argc && hint.empty(); ++i) {
    const std::string word = argv[i];
    const bool known = std::find(names.begin(), names.end(), word) != names.end();
    if (!known && std::string(error.what()).find(word) != std::string::npos) {
      hint = DidYouMean(word, names);
    }
  }
  return absl::StrCat(Printable(error.what()), hint, "; see --help");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Checks how a model is sharded over a mesh: forward, backward and gradients, without running "
      "it. Exits with 0 if the layout is right, 1 if it is not, 2 if a flag or file does not read.",
      "typecheck");
  app.add_option("--preset", flags.config.preset, "A preset's name")->type_name("NAME");
  app.add_option("--config", flags.config.config_file, "A configuration file, in place of a preset")
      ->type_name("FILE");
  app.add_option("--hf", flags.hf, "A Hugging Face folder (its config.json), in place of a preset")
      ->type_name("DIR");
  app.add_option("--set", flags.config.sets, "Overrides one setting, e.g. model.num_layers=4")
      ->type_name("PATH=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--mesh", flags.mesh, "Ranks: dp=N,cp=N,tp=N,ep=N, each 1 where left out [1 rank]")
      ->type_name("MESH");
  app.add_flag("--sp", flags.sp, "Sequence parallelism: tokens are S on tp between its products");
  app.add_option("--plan", flags.plan, "A plan, in place of the standard one (see --print-plan)")
      ->type_name("FILE");
  app.add_option("--edit", flags.edits,
                 "An entry on top of the plan, e.g. 'forward layers.*.attention.in:'; may be "
                 "repeated")
      ->type_name("ENTRY")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--compute", flags.compute, "Activations: fp32 or bf16 [the configuration's]")
      ->type_name("DTYPE");
  app.add_option("--length", flags.length, "Tokens of a window [the configuration's]")
      ->type_name("N");
  app.add_option("--sequences", flags.sequences,
                 "Windows of a pass, over all ranks [one for each dp rank]")
      ->type_name("N");
  app.add_flag("--explain", flags.explain, "Says of every parameter and boundary why it is so");
  app.add_flag("--json", flags.json, "For machines");
  app.add_flag("--keep-going", flags.keep_going, "All mistakes, not the first alone");
  app.add_option("--svg", flags.svg, "Draws one layer: who holds what, and where data move")
      ->type_name("FILE");
  app.add_option("--layer", flags.layer, "The layer to draw [0]")->type_name("N");
  app.add_flag("--print-plan", flags.print_plan,
               "Prints the plan, as --plan reads it, and no more");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Unreadable(absl::InvalidArgumentError(UsageError(app, error, argc, argv)));
  }
  const absl::StatusOr<bool> right = Run(flags);
  if (!right.ok()) return Unreadable(right.status());
  return *right ? kExitOk : kExitWrongLayout;
}

}  // namespace
}  // namespace headwise::typecheck

// The code throws nothing itself; the libraries may, when memory runs out.
int main(int argc, char** argv) {
  try {
    return headwise::typecheck::Main(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "error: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "error: an exception without a message\n");
  }
  return headwise::typecheck::kExitFailed;
}
