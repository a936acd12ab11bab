// muse bench: how fast a model trains, reads a prompt and writes, and how close its kernels are to
// what the machine can do.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "model/bench/bench.h"
#include "model/bench/cpu_device.h"
#include "model/bench/gpu_device.h"
#include "model/bench/report.h"
#include "model/cli/commands.h"
#include "model/cli/config_source.h"
#include "model/cli/device.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/presets/presets.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"
#include "optim/settings.h"

namespace headwise {
namespace {

constexpr char kDefaultPreset[] = "muse_demo";
constexpr char kDefaultTokens[] = "512,2048";

struct BenchFlags {
  ConfigFlags config;
  std::int64_t layers = 0;
  std::string tokens = kDefaultTokens;
  std::string units;
  std::int64_t rows = 8;
  int rounds = 7;
  bool fused_only = false;
  bool json = false;
  std::string device = "cpu";
  int threads = 0;
};

// On `opened`, which must outlive it.
absl::StatusOr<std::unique_ptr<BenchDevice>> MakeDevice(const BenchFlags& flags,
                                                        const CommandDevice& opened) {
  if (opened.on_gpu()) return MakeGpuBenchDevice(*opened.opened.gpu, *opened.opened.launchers);
  return MakeCpuBenchDevice(flags.threads > 0 ? flags.threads : DefaultThreads());
}

absl::StatusOr<RunConfig> WantedConfig(const BenchFlags& flags) {
  HW_ASSIGN_OR_RETURN(const RunConfig fallback, LoadPreset(kDefaultPreset));
  HW_ASSIGN_OR_RETURN(RunConfig config, LoadBaseConfig(flags.config, fallback));
  if (flags.layers > 0) config.mutable_model()->set_num_layers(flags.layers);
  HW_RETURN_IF_ERROR(ApplySettings(flags.config, &config));
  // Both are measured.
  config.mutable_model()->mutable_attention()->set_unfused_qkv(false);
  config = ResolveRunConfig(config);
  HW_RETURN_IF_ERROR(ValidateRunConfig(config));
  return config;
}

// What stands above the tables; beside JSON lines on the other stream.
void PrintStart(std::FILE* out, const BenchPlan& plan, const BenchDevice& device, double memory) {
  const ModelConfig& model = plan.config.model();
  std::fprintf(out, "model       %s, %d layers, %s parameters; activations %s\n",
               model.name().c_str(), static_cast<int>(model.num_layers()),
               FormatCount(static_cast<double>(CountParameters(model).total)).c_str(),
               Name(DecoderOptionsOf(plan.config.training()).compute));
  std::fprintf(out,
               "device      %s; memory needed %s of %s\n"
               "rounds      %d; in each, all that is compared takes turns; times are medians, the "
               "spread is one sample's\n\n",
               device.Describe().c_str(), FormatBytes(memory).c_str(),
               FormatBytes(device.memory_bytes()).c_str(), plan.clock.rounds);
}

absl::Status Bench(const BenchFlags& flags) {
  if (flags.device == "cuda-emulated") {
    return absl::InvalidArgumentError(
        "--device cuda-emulated: expected cpu or cuda, for the time of an emulated kernel says "
        "nothing about a GPU's; the bytes it moves are counted by the kernels' tests");
  }
  HW_ASSIGN_OR_RETURN(const CommandDevice opened, OpenDevice(flags.device, {"cpu", "cuda"}));
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<BenchDevice> device, MakeDevice(flags, opened));
  BenchPlan plan;
  HW_ASSIGN_OR_RETURN(plan.config, WantedConfig(flags));
  HW_ASSIGN_OR_RETURN(plan.tokens, ParseTokens(flags.tokens));
  if (!flags.units.empty()) HW_RETURN_IF_ERROR(ParseUnits(flags.units, &plan));
  // Where Muon runs.
  const bool steps = plan.train || plan.kernels;
  if (steps && !CheckComputeMode(plan.config.optimizer(), opened.on_gpu(), /*ranks=*/1).ok()) {
    return absl::InvalidArgumentError(
        "optimizer.muon.compute_mode must be CONTRACT_FP32 on the CPU for the units train and "
        "kernels, found TENSOR_CORE; try --device cuda, --units prefill,decode, or --set "
        "optimizer.muon.compute_mode=CONTRACT_FP32");
  }
  plan.rows = flags.rows;
  plan.clock.rounds = flags.rounds;
  plan.unfused = !flags.fused_only && device->has_unfused_qkv(plan.config.model());
  HW_RETURN_IF_ERROR(CheckPlan(plan));
  HW_ASSIGN_OR_RETURN(const double memory, CheckMemory(plan, *device));

  const BenchContext context = {.preset = !flags.config.config_file.empty()
                                              ? flags.config.config_file
                                          : !flags.config.preset.empty() ? flags.config.preset
                                                                         : kDefaultPreset,
                                .layers = plan.config.model().num_layers(),
                                .dtype = Name(DecoderOptionsOf(plan.config.training()).compute),
                                .device = device->name(),
                                .threads = device->threads()};
  const auto print = [&](const auto& result, const std::string& line) {
    if (flags.json) {
      for (const Figure& figure : Figures(result))
        std::printf("%s\n", ToJson(figure, context).c_str());
    } else {
      std::fputs(line.c_str(), stdout);
    }
    std::fflush(stdout);
  };
  PrintStart(flags.json ? stderr : stdout, plan, *device, memory);
  const bool units = plan.train || plan.prefill || plan.decode;
  if (!flags.json && units) std::fputs(UnitHead().c_str(), stdout);
  HW_RETURN_IF_ERROR(
      MeasureUnits(plan, *device, [&](const UnitResult& r) { print(r, UnitLines(r)); }));
  if (!plan.kernels) return absl::OkStatus();
  if (!flags.json) {
    std::printf("%skernels of a training step at %d tokens, the largest first\n", units ? "\n" : "",
                static_cast<int>(plan.tokens.back()));
    std::fputs(KernelHead().c_str(), stdout);
  }
  return MeasureKernels(plan, *device, [&](const KernelResult& r) { print(r, KernelLine(r)); });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench",
      "Times training, prefill and decoding, fused and unfused QKV in turns, and the kernels of a "
      "training step against a copy and a matrix product of the same run");
  command
      ->add_option("--preset", flags->config.preset,
                   "A preset's name, see muse info [muse_demo, which every machine can hold]")
      ->check(NotEmpty())
      ->type_name("NAME");
  command
      ->add_option("--config", flags->config.config_file,
                   "A RunConfig in text format, instead of a preset")
      ->check(NotEmpty())
      ->type_name("FILE");
  command
      ->add_option("--layers", flags->layers,
                   "Layers in place of the model's, e.g. 4 of muse_spark")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  command->add_option("--set", flags->config.sets, "Overrides one setting; may be given again")
      ->check(NotEmpty())
      ->type_name("PATH=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--tokens", flags->tokens,
                   absl::StrCat("Sizes: tokens of a training step, of a prompt, and of the context "
                                "that is decoded at [",
                                kDefaultTokens, "]"))
      ->check(NotEmpty())
      ->type_name("T,T,...");
  command
      ->add_option("--units", flags->units,
                   "What to measure, of train, prefill, decode and kernels [all]")
      ->check(NotEmpty())
      ->type_name("U,U,...");
  command->add_option("--rows", flags->rows, "Rows that are decoded together [8]")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  command->add_option("--rounds", flags->rounds, "Samples of each figure [7]")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  command->add_flag("--fused-only", flags->fused_only,
                    "Leaves out unfused QKV, which takes a second model's memory");
  command->add_flag("--json", flags->json,
                    "One JSON object a figure and line on standard output (docs/performance.md)");
  command->add_option("--device", flags->device, "cpu or cuda [cpu]")->type_name("D");
  command->add_option("--threads", flags->threads, "Threads [all cores]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([flags, action] { *action = [flags] { return Bench(*flags); }; });
}

}  // namespace headwise
