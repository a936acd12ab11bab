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
#include "model/gradient_accumulator.h"
#include "model/report/line_plot.h"
#include "model/train/run_config.h"
#include "model/train/token_windows.h"

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

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, std::string directory, TrainingData data)
    : config_(config), directory_(std::move(directory)), data_(std::move(data)) {}

TrainingRun::~TrainingRun() {
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<std::unique_ptr<TrainingRun>> TrainingRun::Create(
    const RunConfig& config, const std::string& directory,
    const std::optional<FoundCheckpoint>& resume, ThreadPool& pool, Kernels kernels) {
  HW_ASSIGN_OR_RETURN(TrainingData data,
                      TrainingData::Load(config.data(), config.model().vocab_size(),
                                         config.training().sequence_length()));
  DecoderOptions options = DecoderOptionsOf(config.training());
  options.kernels = kernels;
  HW_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(config.model(), options));
  HW_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                      Optimizer::Create(config.optimizer(), decoder->parameters()));

  std::unique_ptr<TrainingRun> run(new TrainingRun(config, directory, std::move(data)));
  run->decoder_ = std::move(decoder);
  run->optimizer_ = std::move(optimizer);
  run->accumulator_ = std::make_unique<GradientAccumulator>(run->decoder_->parameters(),
                                                            config.training().micro_batches());
  HW_ASSIGN_OR_RETURN(run->lock_, LockDirectory(directory));
  HW_RETURN_IF_ERROR(RemoveTemporaries(directory).status());
  if (!resume.has_value()) HW_RETURN_IF_ERROR(CheckUnused(directory));
  if (resume.has_value()) {
    if (resume->state.text() != run->data_.Fingerprint()) {
      return absl::FailedPreconditionError(absl::StrCat(
          config.data().path(), ": is another text than the one that ", resume->directory,
          " was trained on: expected ", resume->state.text(), ", found ", run->data_.Fingerprint(),
          "; try that text, or train on this one with --init ", resume->directory,
          " in another --run"));
    }
    HW_RETURN_IF_ERROR(LoadWeights(*resume, run->decoder_->parameters()));
    HW_RETURN_IF_ERROR(LoadOptimizerState(*resume, run->optimizer_->State()));
    run->step_ = resume->state.step();
  } else {
    run->decoder_->Initialize(config.training().seed());
  }
  run->decoder_->WeightsChanged(pool);
  return run;
}

absl::Status TrainingRun::InitializeFrom(const ModelSource& source, ThreadPool& pool) {
  HW_RETURN_IF_ERROR(source.LoadWeights(config_.model(), decoder_->parameters()));
  decoder_->WeightsChanged(pool);
  return absl::OkStatus();
}

absl::StatusOr<TrainingSummary> TrainingRun::Run(Progress* progress, const StopSignal* stop,
                                                 ThreadPool& pool) {
  const TrainingConfig& training = config_.training();
  TrainingSummary summary;
  summary.first_step = step_;
  HW_RETURN_IF_ERROR(WriteFileAtomically(directory_ + "/run.textproto", PrintAllFields(config_)));
  HW_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(directory_ + "/metrics.jsonl", step_));
  metrics_.emplace(std::move(metrics));
  std::int64_t consecutive_skips = 0;
  const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };

  while (step_ < training.steps() && !(stop != nullptr && stop->requested())) {
    StepMetrics metrics = Step(pool);
    const bool last = step_ == training.steps();

    if (last || due(training.eval_every())) {
      metrics.validation_loss = Validate(pool);
      summary.validation_loss = metrics.validation_loss;
    }
    if (const absl::Status logged = metrics_->Append(metrics); !logged.ok()) {
      const absl::Status saved = Save();
      return absl::DataLossError(absl::StrCat(logged.message(), "; ",
                                              saved.ok() ? absl::StrCat("saved as step-", step_)
                                                         : "this step could not be saved either"));
    }
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
  return summary;
}

StepMetrics TrainingRun::Step(ThreadPool& pool) {
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
  std::vector<double> losses;
  for (const TokenBatch& batch : batches) {
    losses.push_back(decoder_->ForwardBackward(batch, loss_scale, pool));
    accumulator_->Add(pool);
  }
  const StepReport report = optimizer_->Step(step_, training.steps(), pool);
  decoder_->WeightsChanged(pool);
  ++step_;

  StepMetrics metrics;
  metrics.step = step_;
  metrics.loss = AdjacentPairTree<double>(losses) * loss_scale;
  metrics.gradient_norm = report.gradient_norm;
  metrics.clip_factor = report.clip_factor;
  metrics.muon_learning_rate = config_.optimizer().muon().learning_rate() * report.schedule;
  metrics.adamw_learning_rate = config_.optimizer().adamw().learning_rate() * report.schedule;
  metrics.skipped = report.skipped;
  metrics.tokens = training.batch_size() * training.sequence_length();
  metrics.seconds = Seconds(start);
  return metrics;
}

double TrainingRun::Validate(ThreadPool& pool) {
  const TrainingConfig& training = config_.training();
  const std::int64_t batch_windows = training.batch_size() / training.micro_batches();
  const std::int64_t split = data_.validation_windows();
  const std::int64_t windows = training.eval_batches() > split / batch_windows
                                   ? split
                                   : training.eval_batches() * batch_windows;
  double loss = 0;
  std::int64_t targets = 0;
  for (std::int64_t first = 0; first < windows; first += batch_windows) {
    const TokenBatch batch = data_.ValidationBatch(first, std::min(batch_windows, windows - first));
    loss += decoder_->Loss(batch, pool);
    targets += NumTargets(batch);
  }
  return targets > 0 ? loss / static_cast<double>(targets) : 0.0;
}

absl::Status TrainingRun::Save() {
  HW_RETURN_IF_ERROR(CheckFinite(decoder_->parameters(), step_));
  CheckpointState state;
  state.set_step(step_);
  state.set_next_sequence(step_ * config_.training().batch_size());
  *state.mutable_config() = config_;
  state.set_text(data_.Fingerprint());
  HW_RETURN_IF_ERROR(SaveCheckpoint(directory_, state, decoder_->parameters(), optimizer_->State(),
                                    config_.training().keep_checkpoints(), hook_));
  return WriteLossPlot();
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
