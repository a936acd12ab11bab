#include "model/train/run_config.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/proto/message_fields.h"
#include "model/config.h"
#include "optim/schedule.h"

namespace headwise {
namespace {

constexpr std::int64_t kMaxTokensPerStep = std::int64_t{1} << 28;
constexpr std::int64_t kMaxSteps = 1'000'000'000;
// Room that the prompt of the final sample may take.
constexpr std::int64_t kSamplePrompt = 32;

const std::set<std::string>& ResumableFields() {
  static const auto* const fields = new std::set<std::string>{
      "model.name",
      "optimizer.muon.compute_mode",
      "optimizer.schedule.decay_steps",
      "optimizer.schedule.warmup_steps",
      "training.steps",
      "training.eval_every",
      "training.eval_batches",
      "training.checkpoint_every",
      "training.keep_checkpoints",
      "training.sample_tokens",
      "data.path",
  };
  return *fields;
}

absl::Status AtLeast(const char* field, std::int64_t value, std::int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected an integer >= ", least, ", found ", value));
}

}  // namespace

RunConfig ResolveRunConfig(RunConfig config) {
  *config.mutable_model() = ResolveModelConfig(config.model());
  TrainingConfig& training = *config.mutable_training();
  if (training.micro_batches() == 0) training.set_micro_batches(1);
  return config;
}

void SetSteps(std::int64_t steps, RunConfig* config) {
  const std::int64_t before = config->training().steps();
  config->mutable_training()->set_steps(steps);
  if (before <= 0) return;
  // Rounded down, so that what fitted the run still does.
  const auto scaled = [&](std::int64_t n) {
    return static_cast<std::int64_t>(static_cast<double>(n) * static_cast<double>(steps) /
                                     static_cast<double>(before));
  };
  ScheduleConfig& schedule = *config->mutable_optimizer()->mutable_schedule();
  schedule.set_warmup_steps(scaled(schedule.warmup_steps()));
  if (schedule.decay_steps() > 0) {
    schedule.set_decay_steps(std::max<std::int64_t>(1, scaled(schedule.decay_steps())));
  }
}

absl::Status ValidateRunConfig(const RunConfig& config) {
  HW_RETURN_IF_ERROR(ValidateModelConfig(config.model()));
  const TrainingConfig& t = config.training();
  // The name of the run's directory.
  const std::string& name = config.model().name();
  const auto plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  if (name.empty() || name[0] == '.' || !std::all_of(name.begin(), name.end(), plain)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.name: expected letters, digits, '_', '-' and '.', not beginning with '.', found '",
        name, "'"));
  }
  HW_RETURN_IF_ERROR(AtLeast("training.steps", t.steps(), 1));
  if (t.steps() > kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.steps: expected at most ", kMaxSteps, ", found ", t.steps()));
  }
  HW_RETURN_IF_ERROR(AtLeast("training.batch_size", t.batch_size(), 1));
  HW_RETURN_IF_ERROR(AtLeast("training.sequence_length", t.sequence_length(), 1));
  if (t.sequence_length() > config.model().max_sequence_length()) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.sequence_length: expected at most model.max_sequence_length = ",
                     config.model().max_sequence_length(), ", found ", t.sequence_length()));
  }
  // One micro-batch's tokens are in memory at once.
  if (t.batch_size() > kMaxTokensPerStep / t.sequence_length()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.batch_size: expected at most ", kMaxTokensPerStep, " tokens a step, found ",
        t.batch_size(), " sequences of ", t.sequence_length()));
  }
  HW_RETURN_IF_ERROR(AtLeast("training.micro_batches", t.micro_batches(), 1));
  if (!std::has_single_bit(static_cast<std::uint64_t>(t.micro_batches())) ||
      t.batch_size() % t.micro_batches() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.micro_batches: expected a power of two that divides training.batch_size = ",
        t.batch_size(), ", found ", t.micro_batches()));
  }
  HW_RETURN_IF_ERROR(AtLeast("training.eval_every", t.eval_every(), 0));
  HW_RETURN_IF_ERROR(AtLeast("training.eval_batches", t.eval_batches(), 1));
  HW_RETURN_IF_ERROR(AtLeast("training.checkpoint_every", t.checkpoint_every(), 0));
  HW_RETURN_IF_ERROR(AtLeast("training.keep_checkpoints", t.keep_checkpoints(), 0));
  HW_RETURN_IF_ERROR(AtLeast("training.sample_tokens", t.sample_tokens(), 0));
  if (t.sample_tokens() >
      std::max<std::int64_t>(0, config.model().max_sequence_length() - kSamplePrompt)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.sample_tokens: expected at most model.max_sequence_length - ", kSamplePrompt,
        " = ", std::max<std::int64_t>(0, config.model().max_sequence_length() - kSamplePrompt),
        ", found ", t.sample_tokens()));
  }
  HW_RETURN_IF_ERROR(ValidateSchedule(config.optimizer().schedule(), t.steps()));
  const double fraction = config.data().validation_fraction();
  if (!(fraction > 0 && fraction < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.validation_fraction: expected a number in (0, 1), found ", fraction));
  }
  HW_RETURN_IF_ERROR(AtLeast("data.document_separator", config.data().document_separator(), -1));
  if (config.data().document_separator() >= config.model().vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.document_separator: expected a token below model.vocab_size = ",
        config.model().vocab_size(), ", or -1, found ", config.data().document_separator()));
  }
  return absl::OkStatus();
}

DecoderOptions DecoderOptionsOf(const TrainingConfig& training) {
  return {.compute = training.compute_dtype() == BF16 ? DType::kBF16 : DType::kF32,
          .gemm = training.gemm() == CONTRACT ? GemmBackend::kContract : GemmBackend::kOneDnn};
}

absl::Status CheckResumable(const RunConfig& checkpoint, const RunConfig& wanted,
                            std::vector<std::string>* changed) {
  const auto before = FieldValues(checkpoint), after = FieldValues(wanted);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto& [name, value] = after[i];
    if (before[i].second == value) continue;
    const std::string change = absl::StrCat(name, ": ", before[i].second, " -> ", value);
    if (ResumableFields().count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot resume with another ", name, ": the checkpoint has ", before[i].second,
          ", found ", value, "; try another --run directory, or leave it as it was"));
    }
    changed->push_back(change);
  }
  return absl::OkStatus();
}

}  // namespace headwise
