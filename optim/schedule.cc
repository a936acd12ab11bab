#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

// From 1 (x = 0) to final_fraction (x = 1), both exactly: std::lerp promises the ends and monotony.
double Decay(double final_fraction, double x) { return std::lerp(1.0, final_fraction, x); }

}  // namespace

double ScheduleFactor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps) {
  HW_CHECK(0 <= step && step < total_steps) << "step " << step << " of " << total_steps;
  const std::int64_t warmup = schedule.warmup_steps();
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup + 1);

  const std::int64_t last = total_steps - 1;
  std::int64_t decay_steps = 0;  // steps between the last one at 1 and the last of the run
  switch (schedule.kind()) {
    case COSINE:
    case LINEAR:
      decay_steps = last - warmup;
      break;
    case WARMUP_STABLE_DECAY:
      decay_steps = schedule.decay_steps();
      break;
    default:
      break;
  }
  const std::int64_t into_decay = step - (last - decay_steps);
  if (decay_steps <= 0 || into_decay <= 0) return 1.0;
  const double x = static_cast<double>(into_decay) / static_cast<double>(decay_steps);
  if (schedule.kind() == COSINE) {
    return Decay(schedule.final_fraction(), 0.5 * (1.0 - std::cos(std::numbers::pi * x)));
  }
  return Decay(schedule.final_fraction(), x);
}

absl::Status ValidateSchedule(const ScheduleConfig& schedule) {
  if (!ScheduleKind_IsValid(schedule.kind())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.schedule.kind must be CONSTANT, COSINE, LINEAR or WARMUP_STABLE_DECAY, found ",
        static_cast<int>(schedule.kind())));
  }
  if (schedule.warmup_steps() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.schedule.warmup_steps must be 0 or more, found ", schedule.warmup_steps()));
  }
  if (schedule.decay_steps() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.schedule.decay_steps must be 0 or more, found ", schedule.decay_steps()));
  }
  if (schedule.kind() == WARMUP_STABLE_DECAY && schedule.decay_steps() == 0) {
    return absl::InvalidArgumentError(
        "optimizer.schedule.decay_steps must be 1 or more for WARMUP_STABLE_DECAY, found 0; "
        "without a decay the kind is CONSTANT");
  }
  if (!(schedule.final_fraction() >= 0 && schedule.final_fraction() <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.schedule.final_fraction must be in [0, 1], found ", schedule.final_fraction()));
  }
  return absl::OkStatus();
}

absl::Status ValidateSchedule(const ScheduleConfig& schedule, std::int64_t total_steps) {
  HW_RETURN_IF_ERROR(ValidateSchedule(schedule));
  if (total_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.steps must be 1 or more, found ", total_steps));
  }
  if (schedule.warmup_steps() > total_steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.schedule.warmup_steps (", schedule.warmup_steps(),
                     ") must not exceed the steps of the run (", total_steps, ")"));
  }
  // Both terms are in [0, total_steps] or the first comparison fails: no overflow.
  if (schedule.kind() == WARMUP_STABLE_DECAY &&
      schedule.decay_steps() > total_steps - schedule.warmup_steps()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.schedule.warmup_steps (", schedule.warmup_steps(), ") plus decay_steps (",
        schedule.decay_steps(), ") must not exceed the steps of the run (", total_steps, ")"));
  }
  return absl::OkStatus();
}

}  // namespace headwise
