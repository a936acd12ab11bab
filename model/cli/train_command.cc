// muse train: trains a preset or a configuration on text, and ends with a sample.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/proto/message_fields.h"
#include "kernels/common/thread_pool.h"
#include "model/cli/commands.h"
#include "model/cli/config_source.h"
#include "model/cli/device.h"
#include "model/cli/model_tables.h"
#include "model/cli/paths.h"
#include "model/cli/rank_flags.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/generate/generate.h"
#include "model/hf/hf_config.h"
#include "model/hf/hf_folder.h"
#include "model/hf/model_source.h"
#include "model/presets/presets.h"
#include "model/report/peak_flops.h"
#include "model/report/progress.h"
#include "model/train/checkpoint.h"
#include "model/train/run_config.h"
#include "model/train/stop_signal.h"
#include "model/train/trainer.h"
#include "model/train/training_data.h"
#include "model/train/training_rank.h"
#include "optim/settings.h"

namespace headwise {
namespace {

constexpr char kDefaultPreset[] = "muse_demo";

struct TrainFlags {
  ConfigFlags config;
  std::string run;   // run directory
  std::string init;  // what to take weights from
  std::int64_t steps = 0;
  std::string device = "cpu";
  int threads = 0;
  bool dry_run = false;
  bool print_config = false;
  bool help_config = false;
  RankFlags ranks;
};

// Weights mean something in their own model only. What --set changes is meant.
absl::Status CheckSameModel(const TrainFlags& flags, ModelConfig wanted, const ModelSource& init) {
  const ModelConfig& model = init.config().model();
  // The length of a table: weights fit any.
  wanted.set_max_sequence_length(model.max_sequence_length());
  const std::string difference = ModelDifference(wanted, model);
  if (difference.empty()) return absl::OkStatus();
  const bool preset = !flags.config.preset.empty();
  return absl::InvalidArgumentError(absl::StrCat(
      preset ? "--preset " : "--config ", preset ? flags.config.preset : flags.config.config_file,
      " and --init ", flags.init, " differ in model.", difference,
      "; expected the same model; try without ", preset ? "--preset" : "--config",
      ", and --set for what is to be another"));
}

// The configuration to run: flags over the checkpoint's (when resuming without --preset or
// --config), those of --init or the preset's.
absl::StatusOr<RunConfig> WantedConfig(const TrainFlags& flags,
                                       const std::optional<FoundCheckpoint>& resume,
                                       const std::optional<ModelSource>& init) {
  HW_ASSIGN_OR_RETURN(const RunConfig fallback,
                      resume.has_value() ? absl::StatusOr<RunConfig>(resume->state.config())
                      : init.has_value() ? absl::StatusOr<RunConfig>(init->config())
                                         : LoadPreset(kDefaultPreset));
  HW_ASSIGN_OR_RETURN(RunConfig config, LoadBaseConfig(flags.config, fallback));
  if (init.has_value()) HW_RETURN_IF_ERROR(CheckSameModel(flags, config.model(), *init));
  if (flags.steps > 0) SetSteps(flags.steps, &config);
  HW_RETURN_IF_ERROR(ApplySettings(flags.config, &config));
  if (config.data().path().empty()) {
    HW_ASSIGN_OR_RETURN(*config.mutable_data()->mutable_path(), DefaultTextPath());
  }
  config.mutable_data()->set_path(std::filesystem::absolute(config.data().path()).string());
  config = ResolveRunConfig(config);
  HW_RETURN_IF_ERROR(ValidateRunConfig(config));
  return config;
}

// Runs one sequence on meta tensors, which checks every shape and dtype, forward and backward, without memory; then
// that the machine, or the GPU, can hold the model. Returns the tables to print.
absl::StatusOr<std::string> CheckAndDescribe(const RunConfig& config, const CommandDevice& device) {
  const TrainingConfig& t = config.training();
  DecoderOptions options = DecoderOptionsOf(t);
  options.device = Device::kMeta;
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> meta,
                      Decoder::Create(config.model(), options));
  const std::int64_t length = t.sequence_length();
  TokenBatch batch;
  batch.inputs.assign(static_cast<std::size_t>(length), 0);
  batch.targets = batch.inputs;
  for (std::int64_t i = 0; i < length; ++i) batch.positions.push_back(i);
  batch.segments = {{.num_queries = length, .num_keys = length}};
  ThreadPool pool(1);
  meta->ForwardBackward(batch, 1.0, pool);

  HW_ASSIGN_OR_RETURN(const std::vector<ParameterAssignment> assignments,
                      AssignOptimizerGroups(config.optimizer(), meta->parameters()));
  std::int64_t gpu_memory = 0;
  if (device.on_gpu()) {
    HW_ASSIGN_OR_RETURN(gpu_memory, device.opened.gpu->FreeMemory());
  }
  HW_RETURN_IF_ERROR(CheckMemory(config, assignments, gpu_memory));
  const double tokens = static_cast<double>(t.batch_size()) * static_cast<double>(length);
  return absl::StrFormat("%s\n%s\n%s\ntokens      %d steps x %d sequences x %d = %s (%s a step)\n",
                         CompactConfig(config), ParameterTable(assignments),
                         MemoryTable(config, assignments), t.steps(), t.batch_size(), length,
                         FormatCount(tokens * static_cast<double>(t.steps())), FormatCount(tokens));
}

absl::Status PrintSample(Decoder& decoder, const RunConfig& config, ThreadPool& pool) {
  const std::int64_t tokens = config.training().sample_tokens();
  if (tokens == 0) return absl::OkStatus();
  GenerateOptions options;
  options.sampler.seed = config.training().seed();
  options.max_tokens = tokens;
  HW_ASSIGN_OR_RETURN(options.prompt, EncodePrompt(config, DefaultPrompt(config)));
  std::printf("\nsample, temperature %g:\n", options.sampler.temperature);
  HW_RETURN_IF_ERROR(Generate(decoder, config.data(), options, stdout, pool).status());
  std::printf("\n");
  return absl::OkStatus();
}

// How to use a run that is done, on the device that it was on, or to make it twice as long.
std::string ToGoOn(const std::string& device, const std::string& directory, std::int64_t steps) {
  return absl::StrCat(
      "to go on    ", CommandOn(device, absl::StrCat("generate --run ", directory)), ", or ",
      CommandOn(device, absl::StrCat("train --run ", directory, " --steps ", 2 * steps)), "\n");
}

void PrintEnd(const TrainingSummary& summary, const RunConfig& config, const std::string& device,
              const std::string& directory, double bigram_entropy) {
  const double bits = 1 / std::log(2.0);
  const char* unit = config.data().format() == BYTES ? "bits/byte" : "bits/token";
  if (summary.steps > 0) {
    std::printf("\n%s after step %d in %s: loss %.4f -> %.4f, %s tokens/s, peak memory %s%s\n",
                summary.interrupted ? "stopped" : "done",
                static_cast<int>(summary.first_step + summary.steps),
                FormatDuration(summary.seconds).c_str(), summary.first_loss, summary.last_loss,
                FormatCount(static_cast<double>(summary.tokens) / summary.seconds).c_str(),
                FormatBytes(static_cast<double>(PeakResidentBytes())).c_str(),
                summary.skipped_steps > 0 ? absl::StrCat(", ", summary.skipped_steps,
                                                         " steps skipped (non-finite gradient)")
                                                .c_str()
                                          : "");
  }
  if (summary.graphs.has_value()) {
    std::printf("graphs      %s\n", summary.graphs->Describe().c_str());
  }
  if (summary.validation_loss.has_value()) {
    std::printf("validation %.4f %s (the text's bigram entropy: %.4f)\n",
                *summary.validation_loss * bits, unit, bigram_entropy);
  }
  std::printf("checkpoint  %s\nmetrics     %s/metrics.jsonl, %s/loss.svg\n",
              summary.checkpoint.c_str(), directory.c_str(), directory.c_str());
  if (summary.interrupted) {
    std::printf("to go on    %s\n",
                CommandOn(device, absl::StrCat("train --run ", directory)).c_str());
  } else {
    std::fputs(ToGoOn(device, directory, config.training().steps()).c_str(), stdout);
  }
}

// What was decided before the first step.
struct Session {
  const TrainFlags& flags;
  const RunConfig& config;
  std::string directory;
  std::string plan;  // tables to print
  const CommandDevice& device;
  const std::optional<FoundCheckpoint>& resume;
  const std::optional<ModelSource>& init;
  const std::vector<std::string>& changes;

  int threads() const { return flags.threads > 0 ? flags.threads : DefaultThreads(); }
  TrainingDevice training_device() const {
    return {.kernels = device.kernels,
            .gpu = device.opened.gpu.get(),
            .launchers = device.opened.launchers};
  }
};

// "2 threads", "4 ranks as threads, 1 threads each", "NVIDIA H200, sm_90, 139.8 GiB, CUDA 13.0".
std::string DescribeDevice(const Session& session, int ranks, int threads) {
  if (session.device.on_gpu()) return session.device.opened.gpu->Describe();
  if (ranks == 1) return absl::StrCat(threads, " threads");
  return absl::StrCat(ranks, " ranks as threads, ", threads, " threads each");
}

// Everything that is said before the first step. `ranks` is 1 or more, with `threads` each; `peak`
// is that of PeakOf.
void PrintStart(const Session& session, const TrainingRun& run, int ranks, int threads,
                double bigram_entropy, double peak) {
  const RunConfig& config = session.config;
  std::fputs(session.plan.c_str(), stdout);
  std::printf(
      "text        %s: %s tokens for training, %s for validation; bigram entropy %.4f bits/token\n",
      config.data().path().c_str(),
      FormatCount(static_cast<double>(run.data().training_tokens())).c_str(),
      FormatCount(static_cast<double>(run.data().validation_tokens())).c_str(), bigram_entropy);
  const std::string yardstick =
      peak > 0 ? absl::StrFormat("against a measured %s matrix product of %s FLOP/s",
                                 config.training().compute_dtype() == BF16 ? "bf16" : "fp32",
                                 FormatCount(peak))
               : "n/a, for an emulation's says nothing about a GPU's";
  std::printf("device      %s, %s; MFU %s\n", session.flags.device.c_str(),
              DescribeDevice(session, ranks, threads).c_str(), yardstick.c_str());
  std::printf("run         %s\n", session.directory.c_str());
  if (session.init.has_value()) std::printf("weights of  %s\n", session.init->Describe().c_str());
  if (session.resume.has_value()) {
    for (const std::string& broken : session.resume->rejected) {
      std::printf("warning: skipped %s\n", broken.c_str());
    }
    std::printf("resumed     %s\n", session.resume->directory.c_str());
    for (const std::string& change : session.changes)
      std::printf("changed     %s\n", change.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

// Trains with everything said that there is to say: on one rank, or as the first of several.
absl::Status RunAndReport(const Session& session, TrainingRun& run, int ranks, double peak,
                          ThreadPool& pool) {
  const RunConfig& config = session.config;
  const double bigram_entropy = run.data().BigramEntropy();
  PrintStart(session, run, ranks, pool.num_threads(), bigram_entropy, peak);
  const StopSignal stop;
  Progress progress(stdout, run.step(), config.training().steps(),
                    TrainingFlopsPerToken(config.model(), config.training().sequence_length()),
                    peak);
  HW_ASSIGN_OR_RETURN(const TrainingSummary summary, run.Run(&progress, &stop, pool));
  PrintEnd(summary, config, session.flags.device, session.directory, bigram_entropy);
  return absl::OkStatus();
}

// FLOP/s that the MFU is measured against; 0 where emulated kernels have none.
absl::StatusOr<double> PeakOf(const Session& session, ThreadPool& pool) {
  if (session.device.kernels == Kernels::kCudaEmulated) return 0.0;
  const DType compute = DecoderOptionsOf(session.config.training()).compute;
  if (session.device.on_gpu()) return MeasurePeakFlops(compute, *session.device.opened.gpu);
  return MeasurePeakFlops(compute, pool);
}

absl::Status TrainAlone(const Session& session) {
  ThreadPool pool(session.threads());
  HW_ASSIGN_OR_RETURN(const double peak, PeakOf(session, pool));
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingRun> run,
                      TrainingRun::Create(session.config, session.directory, session.resume, pool,
                                          session.training_device()));
  if (session.init.has_value()) HW_RETURN_IF_ERROR(run->InitializeFrom(*session.init, pool));
  HW_RETURN_IF_ERROR(RunAndReport(session, *run, 1, peak, pool));
  const bool done = run->step() == session.config.training().steps();
  return done ? PrintSample(run->decoder(), session.config, pool) : absl::OkStatus();
}

absl::Status TrainOnThreads(const Session& session, const ShardedLayout& layout) {
  const auto ranks = static_cast<int>(layout.mesh.size());
  ThreadPool all(session.threads());
  HW_ASSIGN_OR_RETURN(const double peak, PeakOf(session, all));
  bool done = false;
  HW_RETURN_IF_ERROR(RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
    ThreadPool pool(std::max(1, session.threads() / ranks));
    HW_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingRank> rank,
                        TrainingRank::Create(session.config, layout, world));
    HW_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingRun> run,
                        TrainingRun::Create(session.config, session.directory, session.resume, pool,
                                            session.training_device(), rank.get()));
    if (session.init.has_value()) HW_RETURN_IF_ERROR(run->InitializeFrom(*session.init, pool));
    if (!rank->first()) return run->Run(nullptr, nullptr, pool).status();
    HW_RETURN_IF_ERROR(RunAndReport(session, *run, ranks, peak, pool));
    done = run->step() == session.config.training().steps();
    return absl::OkStatus();
  }));
  if (!done || session.config.training().sample_tokens() == 0) return absl::OkStatus();
  // Text is written by one rank, of what was saved.
  HW_ASSIGN_OR_RETURN(const ModelSource saved, ModelSource::Open(session.directory));
  DecoderOptions options = DecoderOptionsOf(session.config.training());
  options.mode = DecoderMode::kInference;
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      Decoder::Create(session.config.model(), options));
  HW_RETURN_IF_ERROR(saved.LoadWeights(session.config.model(), decoder->parameters()));
  decoder->WeightsChanged(all);
  return PrintSample(*decoder, session.config, all);
}

absl::Status Train(const TrainFlags& flags) {
  if (flags.help_config) {
    std::fputs(ConfigReference().c_str(), stdout);
    return absl::OkStatus();
  }
  if (flags.device == "cuda" && !flags.ranks.mesh.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mesh ", flags.ranks.mesh,
                     ": ranks run on CPUs, found --device cuda; try --device cpu, or no --mesh"));
  }
  HW_ASSIGN_OR_RETURN(const CommandDevice device, OpenDevice(flags.device));
  if (flags.steps > 0) {
    for (const std::string& setting : flags.config.sets) {
      if (absl::StartsWith(setting, "training.steps=")) {
        return absl::InvalidArgumentError(
            absl::StrCat("--steps and --set ", setting, ": expected one of them, found both"));
      }
    }
  }
  if (!flags.run.empty() && HfFolder::Is(flags.run)) {
    return absl::FailedPreconditionError(absl::StrCat(
        flags.run, ": expected a run directory, found a Hugging Face folder; try --init ",
        flags.run, " with another --run"));
  }
  std::optional<FoundCheckpoint> resume;
  if (!flags.run.empty()) {
    HW_ASSIGN_OR_RETURN(resume, FindCheckpoint(flags.run));
  }
  std::optional<ModelSource> init;
  if (!flags.init.empty()) {
    if (resume.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--init: ", flags.run, " already holds a checkpoint to resume; expected an empty --run"));
    }
    HW_ASSIGN_OR_RETURN(init, ModelSource::Open(flags.init));
  }
  HW_ASSIGN_OR_RETURN(const RunConfig config, WantedConfig(flags, resume, init));
  if (flags.print_config) {
    std::fputs(PrintAllFields(config).c_str(), stdout);
    return absl::OkStatus();
  }
  std::vector<std::string> changes;
  if (resume.has_value()) {
    HW_RETURN_IF_ERROR(CheckResumable(resume->state.config(), config, &changes));
  }
  if (resume.has_value() && resume->state.step() >= config.training().steps()) {
    std::printf("%s: the run has done %d steps already: nothing left to do\n%s",
                resume->directory.c_str(), static_cast<int>(resume->state.step()),
                ToGoOn(flags.device, flags.run, resume->state.step()).c_str());
    return absl::OkStatus();
  }
  HW_ASSIGN_OR_RETURN(const std::string plan, CheckAndDescribe(config, device));
  HW_ASSIGN_OR_RETURN(const std::optional<CheckedLayout> layout, CheckLayout(flags.ranks, config));
  HW_RETURN_IF_ERROR(CheckComputeMode(config.optimizer(), device.runs_cuda_kernels(),
                                      layout.has_value() ? layout->layout.mesh.size() : 1));
  const std::string layout_line =
      layout.has_value() ? absl::StrCat("layout      ", layout->description, "\n") : "";
  if (flags.dry_run) {
    HW_RETURN_IF_ERROR(TrainingData::Load(config.data(), config.model().vocab_size(),
                                          config.training().sequence_length())
                           .status());
    std::printf(
        "%s%sdry run: the configuration, every shape and the text are right; nothing was trained\n",
        plan.c_str(), layout_line.c_str());
    return absl::OkStatus();
  }

  const std::string directory =
      flags.run.empty() ? NewRunDirectory(config.model().name()) : flags.run;
  const Session session = {.flags = flags,
                           .config = config,
                           .directory = directory,
                           .plan = absl::StrCat(plan, layout_line),
                           .device = device,
                           .resume = resume,
                           .init = init,
                           .changes = changes};
  return layout.has_value() ? TrainOnThreads(session, layout->layout) : TrainAlone(session);
}

}  // namespace

void AddTrainCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand(
      "train", "Trains on text: without flags, muse_demo on the text that tools/setup.sh brought");
  command->add_option("--preset", flags->config.preset, "Name of a preset; see `muse info`")
      ->check(NotEmpty())
      ->type_name("NAME");
  command
      ->add_option("--config", flags->config.config_file,
                   "RunConfig in text format, instead of a preset")
      ->check(NotEmpty())
      ->type_name("FILE");
  command
      ->add_option(
          "--set", flags->config.sets,
          "Overrides one setting, e.g. training.steps=100; may be repeated (see --help-config)")
      ->type_name("PATH=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--run", flags->run,
                   "Run directory; resumes if it holds a checkpoint [runs/NAME]")
      ->check(NotEmpty())
      ->type_name("DIR");
  command
      ->add_option(
          "--init", flags->init,
          "Starts at step 0 from the weights of a run, a checkpoint or a Hugging Face folder; "
          "without --preset and --config also with every setting of that run, or with the folder's "
          "model and muse_demo's settings; --steps and --set change them")
      ->check(NotEmpty())
      ->type_name("DIR");
  command
      ->add_option("--steps", flags->steps,
                   "Optimizer steps; scales the schedule's warm-up and decay with them")
      ->check(CLI::Range(1, 1000000000))
      ->type_name("N");
  command->add_option("--device", flags->device, "cpu, cuda or cuda-emulated [cpu]")
      ->type_name("D");
  command->add_option("--threads", flags->threads, "Threads; changes no result [all cores]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  AddRankOptions(command, &flags->ranks);
  command->add_flag("--dry-run", flags->dry_run,
                    "Checks everything, prints the plan, trains nothing");
  command->add_flag("--print-config", flags->print_config,
                    "Prints the resolved configuration and stops");
  command->add_flag("--help-config", flags->help_config,
                    "Prints every setting with its meaning and stops");
  command->callback([flags, action] { *action = [flags] { return Train(*flags); }; });
}

}  // namespace headwise
