// per_head: trains one model twice from one initialisation, per-head Muon on and off, in
// alternating steps.
//
//   bazel run //tools/per_head -- --steps 120 --out docs/per_head_muon
//
// Prints what one step does to the packed QKV weights, then the loss, throughput and memory of both
// arms, and writes OUT.csv and OUT.svg. Peak memory is measured in one child process an arm, which
// trains it alone for a few steps.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "model/cli/config_source.h"
#include "model/cli/device.h"
#include "model/cli/exit_code.h"
#include "model/cli/paths.h"
#include "model/presets/presets.h"
#include "model/report/line_plot.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"
#include "model/train/token_windows.h"
#include "tools/per_head/experiment.h"

namespace headwise {
namespace {

struct Flags {
  ConfigFlags config{.preset = "muse_17m"};
  std::int64_t steps = 0;
  int threads = 0;
  std::string out;
  bool skip_memory = false;
};

absl::StatusOr<RunConfig> LoadConfig(const Flags& flags) {
  HW_ASSIGN_OR_RETURN(RunConfig config, LoadBaseConfig(flags.config, RunConfig()));
  if (flags.steps > 0) SetSteps(flags.steps, &config);
  HW_RETURN_IF_ERROR(ApplySettings(flags.config, &config));
  if (config.data().path().empty()) {
    HW_ASSIGN_OR_RETURN(*config.mutable_data()->mutable_path(), DefaultTextPath());
  }
  config = ResolveRunConfig(config);
  HW_RETURN_IF_ERROR(ValidateRunConfig(config));
  if (config.training().micro_batches() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.micro_batches: expected 1 in this experiment, found ",
                     config.training().micro_batches()));
  }
  return config;
}

double Mean(const std::vector<double>& values, std::size_t first, std::size_t count) {
  return std::accumulate(values.begin() + first, values.begin() + first + count, 0.0) /
         static_cast<double>(count);
}

// Peak resident bytes of a child process that trains one arm alone for a few steps.
absl::StatusOr<std::int64_t> PeakMemoryOf(const RunConfig& config, MuonGranularity granularity,
                                          int threads) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return absl::InternalError("fork failed");
  if (child == 0) {
    ThreadPool pool(threads);
    auto data = TrainingData::Load(config.data(), config.model().vocab_size(),
                                   config.training().sequence_length());
    auto decoder = Decoder::Create(config.model(), DecoderOptionsOf(config.training()));
    OptimizerConfig settings = config.optimizer();
    settings.mutable_muon()->set_granularity(granularity);
    if (!data.ok() || !decoder.ok()) _exit(1);
    auto optimizer = Optimizer::Create(settings, (*decoder)->parameters());
    if (!optimizer.ok()) _exit(1);
    (*decoder)->Initialize(config.training().seed());
    (*decoder)->WeightsChanged(pool);
    const std::int64_t sequences = config.training().batch_size();
    for (std::int64_t step = 0; step < 2; ++step) {
      const TokenBatch batch =
          data->TrainingBatch(config.training().seed(), step * sequences, sequences);
      (*decoder)->ForwardBackward(batch, 1.0 / static_cast<double>(NumTargets(batch)), pool);
      (*optimizer)->Step(step, config.training().steps(), pool);
      (*decoder)->WeightsChanged(pool);
    }
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError("the child process that measures memory failed");
  }
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

double Spread(const std::vector<double>& norms) {
  return *std::max_element(norms.begin(), norms.end()) /
         *std::min_element(norms.begin(), norms.end());
}

void PrintFirstUpdate(PerHeadExperiment& experiment) {
  std::vector<std::string> differing;
  const std::vector<UpdateComparison> comparisons = experiment.CompareFirstUpdate(&differing);
  std::printf("after one step from one initialisation, %d of %d parameters differ:\n",
              static_cast<int>(differing.size()),
              static_cast<int>(experiment.per_head().decoder->parameters().size()));
  std::printf("%-28s %6s %18s %18s %22s\n", "parameter", "heads", "spread per head", "spread whole",
              "|difference| / |whole|");
  for (const UpdateComparison& c : comparisons) {
    std::printf("%-28s %6d %17.2fx %17.2fx %22.3f\n", c.parameter.c_str(),
                static_cast<int>(c.per_head_norms.size()), Spread(c.per_head_norms),
                Spread(c.whole_matrix_norms), c.relative_difference);
  }
  std::printf("(spread: largest over smallest Frobenius norm of a head's rows in the update)\n\n");
}

std::string Csv(PerHeadExperiment& experiment) {
  std::string csv = "step,per_head_loss,whole_matrix_loss,per_head_seconds,whole_matrix_seconds\n";
  const ExperimentArm& a = experiment.per_head();
  const ExperimentArm& b = experiment.whole_matrix();
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    absl::StrAppendFormat(&csv, "%d,%.6f,%.6f,%.3f,%.3f\n", i + 1, a.losses[i], b.losses[i],
                          a.seconds[i], b.seconds[i]);
  }
  return csv;
}

std::string Svg(PerHeadExperiment& experiment) {
  LinePlot plot;
  plot.title = absl::StrCat("Muon per head and per matrix: ", experiment.config().model().name());
  plot.x_label = "step";
  plot.y_label = "training loss (nats per token)";
  for (const ExperimentArm* arm : {&experiment.per_head(), &experiment.whole_matrix()}) {
    LineSeries series{.name = arm->name, .y = arm->losses};
    for (std::size_t i = 0; i < arm->losses.size(); ++i)
      series.x.push_back(static_cast<double>(i + 1));
    plot.series.push_back(std::move(series));
  }
  return RenderSvg(plot);
}

absl::Status Run(const Flags& flags) {
  HW_RETURN_IF_ERROR(EnterUserDirectory());
  HW_ASSIGN_OR_RETURN(const RunConfig config, LoadConfig(flags));
  const int threads = flags.threads > 0 ? flags.threads : DefaultThreads();
  // Before this process has threads of its own.
  std::int64_t memory[2] = {0, 0};
  if (!flags.skip_memory) {
    HW_ASSIGN_OR_RETURN(memory[0], PeakMemoryOf(config, HEAD, threads));
    HW_ASSIGN_OR_RETURN(memory[1], PeakMemoryOf(config, WHOLE_MATRIX, threads));
  }
  ThreadPool pool(threads);
  HW_ASSIGN_OR_RETURN(PerHeadExperiment experiment, PerHeadExperiment::Create(config, pool));
  const std::int64_t steps = config.training().steps();
  const std::int64_t tokens = config.training().batch_size() * config.training().sequence_length();
  for (std::int64_t step = 0; step < steps; ++step) {
    experiment.Step(step, pool);
    if (step == 0) PrintFirstUpdate(experiment);
    const double pair =
        experiment.per_head().seconds.back() + experiment.whole_matrix().seconds.back();
    std::printf("step %d/%d  per-head %.4f  whole-matrix %.4f  %.2f s a pair  ETA %s\n",
                static_cast<int>(step + 1), static_cast<int>(steps),
                experiment.per_head().losses.back(), experiment.whole_matrix().losses.back(), pair,
                FormatDuration(pair * static_cast<double>(steps - step - 1)).c_str());
    std::fflush(stdout);
  }
  const std::size_t n = experiment.per_head().losses.size(), window = std::min<std::size_t>(10, n);
  std::printf("\n%-14s %15s %15s %12s %14s\n", "arm", absl::StrCat("mean first ", window).c_str(),
              absl::StrCat("mean last ", window).c_str(), "tokens/s", "peak memory");
  int i = 0;
  for (const ExperimentArm* arm : {&experiment.per_head(), &experiment.whole_matrix()}) {
    std::vector<double> seconds = arm->seconds;
    std::nth_element(seconds.begin(), seconds.begin() + n / 2, seconds.end());
    std::printf(
        "%-14s %15.4f %15.4f %12s %14s\n", arm->name.c_str(), Mean(arm->losses, 0, window),
        Mean(arm->losses, n - window, window),
        FormatCount(static_cast<double>(tokens) / seconds[n / 2]).c_str(),
        memory[i] > 0 ? FormatBytes(static_cast<double>(memory[i])).c_str() : "not measured");
    ++i;
  }
  std::printf("(tokens/s at the median step)\n");
  if (flags.out.empty()) return absl::OkStatus();
  HW_RETURN_IF_ERROR(WriteFileAtomically(flags.out + ".csv", Csv(experiment)));
  HW_RETURN_IF_ERROR(WriteFileAtomically(flags.out + ".svg", Svg(experiment)));
  std::printf("written     %s.csv, %s.svg\n", flags.out.c_str(), flags.out.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace headwise

int main(int argc, char** argv) {
  headwise::Flags flags;
  CLI::App app("Trains one model twice from one initialisation: Muon per head and per matrix.",
               "per_head");
  app.add_option("--preset", flags.config.preset, "Preset [muse_17m]");
  app.add_option("--steps", flags.steps, "Steps [the preset's]")->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "Threads [all cores]")->check(CLI::PositiveNumber);
  app.add_option("--set", flags.config.sets, "Overrides one setting: path=value")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--out", flags.out, "Writes OUT.csv and OUT.svg");
  app.add_flag("--skip-memory", flags.skip_memory, "Does not measure peak memory");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = headwise::Run(flags);
  return status.ok() ? 0 : headwise::ReportError(status);
}
