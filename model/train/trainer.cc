#include "model/train/trainer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "core/proto/message_fields.h"
#include "kernels/common/reductions.h"
#include "model/rank_pass.h"
#include "model/report/line_plot.h"
#include "model/train/run_config.h"
#include "model/train/token_windows.h"
#include "optim/emulated_kernels.h"
#include "optim/optimizer_kernels.h"

namespace headwise {
namespace {

// Consecutive skipped steps after which a run is given up: its weights no longer give finite
// gradients.
constexpr std::int64_t kMaxConsecutiveSkips = 20;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// The lock lives as long as the descriptor, so that a killed process leaves none behind.
absl::StatusOr<int> LockDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError(error.value(), "create", directory);
  const std::string path = directory + "/.lock";
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, "create", path);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(absl::StrCat(
      directory,
      ": another process is training there; expected it to be free; wait, or try another --run"));
}

// A new run must not write over what an earlier one left.
absl::Status CheckUnused(const std::string& directory) {
  for (const char* name : {"run.textproto", "metrics.jsonl", "loss.svg"}) {
    std::error_code error;
    if (std::filesystem::exists(absl::StrCat(directory, "/", name), error)) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory, ": holds ", name,
                       " of another run but no checkpoint to resume; expected a new or empty "
                       "directory; try another --run, or "
                       "remove it"));
    }
  }
  return absl::OkStatus();
}

// Weights that are not numbers are never saved over good ones.
absl::Status CheckFinite(const std::vector<Parameter*>& parameters, std::int64_t step) {
  for (const Parameter* p : parameters) {
    const float* value = p->value.data<float>();
    for (std::int64_t i = 0; i < p->value.size(); ++i) {
      if (std::isfinite(value[i])) continue;
      return absl::AbortedError(absl::StrCat("training: ", p->name, " is not finite after step ",
                                             step,
                                             "; expected finite weights; nothing was saved; try a "
                                             "lower learning rate from the last checkpoint"));
    }
  }
  return absl::OkStatus();
}

std::vector<Parameter*> Pointers(std::vector<Parameter>& parameters) {
  std::vector<Parameter*> pointers;
  for (Parameter& parameter : parameters) pointers.push_back(&parameter);
  return pointers;
}

OptimizerKernels OptimizerKernelsOf(Kernels kernels) {
  return kernels == Kernels::kCudaEmulated ? EmulatedOptimizerKernels() : OptimizerKernels();
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, std::string directory, TrainingData data)
    : config_(config), directory_(std::move(directory)), data_(std::move(data)) {}

TrainingRun::~TrainingRun() {
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<std::unique_ptr<TrainingRun>> TrainingRun::Create(
    const RunConfig& config, const std::string& directory,
    const std::optional<FoundCheckpoint>& resume, ThreadPool& pool, const TrainingDevice& device,
    TrainingRank* rank) {
  HW_ASSIGN_OR_RETURN(TrainingData data,
                      TrainingData::Load(config.data(), config.model().vocab_size(),
                                         config.training().sequence_length()));
  DecoderOptions options = DecoderOptionsOf(config.training());
  options.kernels = device.kernels;
  if (device.gpu != nullptr) {
    options.device = Device::kCuda;
    options.gpu = device.gpu;
    options.launchers = device.launchers;
  }
  if (rank != nullptr) options.sharding = &rank->sharding();
  HW_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(config.model(), options));

  std::unique_ptr<TrainingRun> run(new TrainingRun(config, directory, std::move(data)));
  run->rank_ = rank;
  run->decoder_ = std::move(decoder);
  HW_RETURN_IF_ERROR(run->MakeOptimizer(device));
  HW_RETURN_IF_ERROR(run->Agree(run->first() ? run->Open(resume) : absl::OkStatus()));
  if (resume.has_value()) {
    HW_RETURN_IF_ERROR(run->Resume(*resume, pool));
  } else {
    run->decoder_->Initialize(config.training().seed());
  }
  run->decoder_->WeightsChanged(pool);
  return run;
}

absl::Status TrainingRun::MakeOptimizer(const TrainingDevice& device) {
  if (device.gpu != nullptr) {
    HW_ASSIGN_OR_RETURN(on_gpu_,
                        GpuTraining::Create(config_, *decoder_, *device.gpu, *device.launchers));
    return absl::OkStatus();
  }
  HW_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(config_.optimizer(), decoder_->parameters(),
                                                    rank_ == nullptr ? nullptr : &rank_->ranks(),
                                                    OptimizerKernelsOf(device.kernels)));
  const std::int64_t groups = rank_ == nullptr ? 1 : rank_->groups();
  accumulator_ = std::make_unique<GradientAccumulator>(decoder_->parameters(),
                                                       config_.training().micro_batches() / groups);
  return absl::OkStatus();
}

absl::Status TrainingRun::Open(const std::optional<FoundCheckpoint>& resume) {
  HW_ASSIGN_OR_RETURN(lock_, LockDirectory(directory_));
  HW_RETURN_IF_ERROR(RemoveTemporaries(directory_).status());
  return resume.has_value() ? absl::OkStatus() : CheckUnused(directory_);
}

absl::Status TrainingRun::Resume(const FoundCheckpoint& resume, ThreadPool& pool) {
  if (resume.state.text() != data_.Fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        config_.data().path(), ": is another text than the one that ", resume.directory,
        " was trained on: expected ", resume.state.text(), ", found ", data_.Fingerprint(),
        "; try that text, or train on this one with --init ", resume.directory,
        " in another --run"));
  }
  const auto weights = [&](const std::vector<Parameter*>& whole) {
    return LoadWeights(resume, whole);
  };
  const auto state = [&](const std::vector<NamedTensor>& whole) {
    return LoadOptimizerState(resume, whole);
  };
  if (on_gpu_ != nullptr) {
    HW_RETURN_IF_ERROR(on_gpu_->LoadWeights(weights, pool));
    HW_RETURN_IF_ERROR(on_gpu_->LoadState(state));
  } else if (rank_ == nullptr) {
    HW_RETURN_IF_ERROR(weights(decoder_->parameters()));
    HW_RETURN_IF_ERROR(state(optimizer_->State()));
  } else {
    HW_RETURN_IF_ERROR(rank_->LoadParameters(decoder_->parameters(), weights));
    HW_RETURN_IF_ERROR(rank_->LoadState(optimizer_->State(), state));
  }
  step_ = resume.state.step();
  return absl::OkStatus();
}

absl::Status TrainingRun::InitializeFrom(const ModelSource& source, ThreadPool& pool) {
  const auto load = [&](const std::vector<Parameter*>& whole) {
    return source.LoadWeights(config_.model(), whole);
  };
  if (on_gpu_ != nullptr) return on_gpu_->LoadWeights(load, pool);
  HW_RETURN_IF_ERROR(rank_ == nullptr ? load(decoder_->parameters())
                                      : rank_->LoadParameters(decoder_->parameters(), load));
  decoder_->WeightsChanged(pool);
  return absl::OkStatus();
}

absl::Status TrainingRun::Log(const StepMetrics& metrics) {
  const absl::Status logged = metrics_.has_value() ? metrics_->Append(metrics) : absl::OkStatus();
  if (rank_ != nullptr) return Agree(logged);
  if (logged.ok()) return logged;
  const absl::Status saved = Save();
  return absl::DataLossError(absl::StrCat(
      logged.message(), "; ",
      saved.ok() ? absl::StrCat("saved as step-", step_) : "this step could not be saved either"));
}

absl::StatusOr<TrainingSummary> TrainingRun::Run(Progress* progress, const StopSignal* stop,
                                                 ThreadPool& pool) {
  const TrainingConfig& training = config_.training();
  TrainingSummary summary;
  summary.first_step = step_;
  if (first()) {
    HW_RETURN_IF_ERROR(
        Agree(WriteFileAtomically(directory_ + "/run.textproto", PrintAllFields(config_))));
    auto metrics = MetricsLog::Open(directory_ + "/metrics.jsonl", step_);
    HW_RETURN_IF_ERROR(Agree(metrics.status()));
    metrics_.emplace(*std::move(metrics));
  } else {
    HW_RETURN_IF_ERROR(Agree(absl::OkStatus()));
    HW_RETURN_IF_ERROR(Agree(absl::OkStatus()));
  }
  std::int64_t consecutive_skips = 0;
  const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
  const auto stopped = [&]() -> absl::StatusOr<bool> {
    const bool requested = stop != nullptr && stop->requested();
    return rank_ == nullptr ? requested : rank_->FromFirst(requested);
  };

  while (step_ < training.steps()) {
    HW_ASSIGN_OR_RETURN(const bool stop_now, stopped());
    if (stop_now) break;
    HW_ASSIGN_OR_RETURN(StepMetrics metrics, Step(pool));
    const bool last = step_ == training.steps();

    if (last || due(training.eval_every())) {
      HW_ASSIGN_OR_RETURN(metrics.validation_loss, Validate(pool));
      summary.validation_loss = metrics.validation_loss;
    }
    HW_RETURN_IF_ERROR(Log(metrics));
    if (progress != nullptr) {
      progress->Update(metrics);
      if (metrics.validation_loss.has_value()) {
        progress->Message(absl::StrFormat("  validation at step %d: loss %.4f, %.4f bits/token",
                                          step_, *metrics.validation_loss,
                                          *metrics.validation_loss / std::log(2.0)));
      }
    }

    if (summary.steps == 0) summary.first_loss = metrics.loss;
    summary.last_loss = metrics.loss;
    summary.seconds += metrics.seconds;
    summary.tokens += metrics.tokens;
    ++summary.steps;
    summary.skipped_steps += metrics.skipped;
    consecutive_skips = metrics.skipped ? consecutive_skips + 1 : 0;
    if (consecutive_skips == kMaxConsecutiveSkips) {
      return absl::AbortedError(absl::StrCat("training: the gradients of ", kMaxConsecutiveSkips,
                                             " steps in a row up to step ", step_,
                                             " were not finite; expected finite numbers; try a "
                                             "lower learning rate from the last checkpoint in ",
                                             directory_));
    }
    if (last || due(training.checkpoint_every())) HW_RETURN_IF_ERROR(Save());
  }

  summary.interrupted = step_ < training.steps();
  if (summary.interrupted && !due(training.checkpoint_every())) HW_RETURN_IF_ERROR(Save());
  if (progress != nullptr) progress->Finish();
  summary.checkpoint = absl::StrCat(directory_, "/step-", step_);
  if (on_gpu_ != nullptr) summary.graphs = on_gpu_->graphs();
  return summary;
}

absl::StatusOr<std::vector<double>> TrainingRun::Accumulate(const std::vector<TokenBatch>& batches,
                                                            double loss_scale, ThreadPool& pool) {
  std::vector<double> losses;
  if (rank_ == nullptr) {
    for (const TokenBatch& batch : batches) {
      losses.push_back(decoder_->ForwardBackward(batch, loss_scale, pool));
      accumulator_->Add(pool);
    }
    return losses;
  }
  // Consecutive micro-batches are one group's: what it adds up is a subtree of the whole sum.
  const auto own = static_cast<std::int64_t>(batches.size()) / rank_->groups();
  for (std::int64_t i = 0; i < own; ++i) {
    const TokenBatch& batch = batches[static_cast<std::size_t>(rank_->group() * own + i)];
    losses.push_back(decoder_->ForwardBackward(rank_->ShareOfGroup(batch), loss_scale, pool));
    HW_RETURN_IF_ERROR(rank_->sharding().status());
    accumulator_->Add(pool);
  }
  HW_RETURN_IF_ERROR(ReduceGradients(rank_->sharding(), decoder_->parameters()));
  return rank_->SumsOfAllGroups(losses);
}

absl::StatusOr<StepOutcome> TrainingRun::StepOver(const std::vector<TokenBatch>& batches,
                                                  double loss_scale, ThreadPool& pool) {
  const std::int64_t steps = config_.training().steps();
  if (on_gpu_ != nullptr) return on_gpu_->Step(batches, loss_scale, step_, steps, pool);
  StepOutcome outcome;
  HW_ASSIGN_OR_RETURN(outcome.losses, Accumulate(batches, loss_scale, pool));
  outcome.report = optimizer_->Step(step_, steps, pool);
  HW_RETURN_IF_ERROR(outcome.report.status);
  decoder_->WeightsChanged(pool);
  return outcome;
}

absl::StatusOr<StepMetrics> TrainingRun::Step(ThreadPool& pool) {
  const auto start = std::chrono::steady_clock::now();
  const TrainingConfig& training = config_.training();
  const std::int64_t leaves = training.micro_batches();
  const std::int64_t leaf_size = training.batch_size() / leaves;
  std::vector<TokenBatch> batches;
  std::int64_t targets = 0;
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    batches.push_back(data_.TrainingBatch(
        training.seed(), step_ * training.batch_size() + leaf * leaf_size, leaf_size));
    targets += NumTargets(batches.back());
  }
  // A step without a single target has nothing to learn: its gradients are exactly zero.
  const double loss_scale = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
  HW_ASSIGN_OR_RETURN(const StepOutcome outcome, StepOver(batches, loss_scale, pool));
  const StepReport& report = outcome.report;
  ++step_;

  StepMetrics metrics;
  metrics.step = step_;
  metrics.loss = AdjacentPairTree<double>(outcome.losses) * loss_scale;
  metrics.gradient_norm = report.gradient_norm;
  metrics.clip_factor = report.clip_factor;
  metrics.muon_learning_rate = config_.optimizer().muon().learning_rate() * report.schedule;
  metrics.adamw_learning_rate = config_.optimizer().adamw().learning_rate() * report.schedule;
  metrics.skipped = report.skipped;
  metrics.tokens = training.batch_size() * training.sequence_length();
  metrics.seconds = Seconds(start);
  return metrics;
}

absl::StatusOr<std::vector<double>> TrainingRun::Losses(const std::vector<TokenBatch>& batches,
                                                        ThreadPool& pool) {
  std::vector<double> losses;
  if (on_gpu_ != nullptr) {
    for (const TokenBatch& batch : batches) {
      HW_ASSIGN_OR_RETURN(const double loss, on_gpu_->Loss(batch, pool));
      losses.push_back(loss);
    }
    return losses;
  }
  if (rank_ == nullptr) {
    for (const TokenBatch& batch : batches) losses.push_back(decoder_->Loss(batch, pool));
    return losses;
  }
  // In rounds of one batch for each group. Ranks of all groups take part in each; where batches or
  // their tokens end early, the rest has no targets.
  const auto groups = static_cast<std::size_t>(rank_->groups());
  const auto size = static_cast<std::size_t>(rank_->sharding().group_tokens());
  for (std::size_t begin = 0; begin < batches.size(); begin += groups) {
    const std::size_t own = begin + static_cast<std::size_t>(rank_->group());
    TokenBatch batch = batches[std::min(own, batches.size() - 1)];
    if (own >= batches.size())
      std::fill(batch.targets.begin(), batch.targets.end(), kIgnoredTarget);
    if (const auto tokens = static_cast<std::int64_t>(batch.inputs.size());
        batch.inputs.size() < size) {
      const auto missing = static_cast<std::int64_t>(size) - tokens;
      batch.segments.push_back({.query_begin = tokens,
                                .num_queries = missing,
                                .key_begin = tokens,
                                .num_keys = missing});
      batch.inputs.resize(size, 0);
      batch.targets.resize(size, kIgnoredTarget);
      for (std::int64_t i = 0; i < missing; ++i)
        batch.positions.push_back(i % config_.training().sequence_length());
    }
    const double local = decoder_->Loss(rank_->ShareOfGroup(batch), pool);
    HW_RETURN_IF_ERROR(rank_->sharding().status());
    HW_ASSIGN_OR_RETURN(const std::vector<double> round, rank_->SumsOfAllGroups({local}));
    losses.insert(losses.end(), round.begin(), round.end());
  }
  losses.resize(batches.size());
  return losses;
}

absl::StatusOr<double> TrainingRun::Validate(ThreadPool& pool) {
  const TrainingConfig& training = config_.training();
  const std::int64_t batch_windows = training.batch_size() / training.micro_batches();
  const std::int64_t split = data_.validation_windows();
  const std::int64_t windows = training.eval_batches() > split / batch_windows
                                   ? split
                                   : training.eval_batches() * batch_windows;
  double loss = 0;
  std::int64_t targets = 0;
  // As many at a time as there are groups.
  const std::int64_t groups = rank_ == nullptr ? 1 : rank_->groups();
  for (std::int64_t first = 0; first < windows;) {
    std::vector<TokenBatch> batches;
    for (; first < windows && static_cast<std::int64_t>(batches.size()) < groups;
         first += batch_windows) {
      batches.push_back(data_.ValidationBatch(first, std::min(batch_windows, windows - first)));
      targets += NumTargets(batches.back());
    }
    HW_ASSIGN_OR_RETURN(const std::vector<double> losses, Losses(batches, pool));
    for (const double one : losses) loss += one;
  }
  return targets > 0 ? loss / static_cast<double>(targets) : 0.0;
}

absl::Status TrainingRun::Save() {
  std::vector<Parameter> copies;  // on the host
  if (on_gpu_ != nullptr) {
    HW_ASSIGN_OR_RETURN(copies, on_gpu_->Weights());
  }
  HW_RETURN_IF_ERROR(
      Agree(CheckFinite(on_gpu_ != nullptr ? Pointers(copies) : decoder_->parameters(), step_)));
  CheckpointState state;
  state.set_step(step_);
  state.set_next_sequence(step_ * config_.training().batch_size());
  *state.mutable_config() = config_;
  state.set_text(data_.Fingerprint());
  const auto save = [&](const std::vector<Parameter*>& parameters,
                        const std::vector<NamedTensor>& optimizer_state) -> absl::Status {
    HW_RETURN_IF_ERROR(SaveCheckpoint(directory_, state, parameters, optimizer_state,
                                      config_.training().keep_checkpoints(), hook_));
    return WriteLossPlot();
  };
  if (on_gpu_ != nullptr) {
    HW_ASSIGN_OR_RETURN(const std::vector<NamedTensor> optimizer_state, on_gpu_->State());
    return save(Pointers(copies), optimizer_state);
  }
  if (rank_ == nullptr) return save(decoder_->parameters(), optimizer_->State());
  HW_ASSIGN_OR_RETURN(std::vector<Parameter> whole, rank_->WholeParameters(decoder_->parameters()));
  HW_ASSIGN_OR_RETURN(const std::vector<NamedTensor> whole_state,
                      rank_->WholeState(optimizer_->State()));
  return Agree(first() ? save(Pointers(whole), whole_state) : absl::OkStatus());
}

absl::Status TrainingRun::WriteLossPlot() {
  HW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> steps, ReadMetrics(metrics_->path()));
  LinePlot plot;
  plot.title = absl::StrCat("Loss of ", config_.model().name());
  plot.x_label = "step";
  plot.y_label = "loss (nats per token)";
  LineSeries training{.name = "training"}, validation{.name = "validation", .markers = true};
  for (const StepMetrics& m : steps) {
    training.x.push_back(static_cast<double>(m.step));
    training.y.push_back(m.loss);
    if (!m.validation_loss.has_value()) continue;
    validation.x.push_back(static_cast<double>(m.step));
    validation.y.push_back(*m.validation_loss);
  }
  plot.series = {std::move(training), std::move(validation)};
  return WriteFileAtomically(directory_ + "/loss.svg", RenderSvg(plot));
}

}  // namespace headwise
