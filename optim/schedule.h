// schedule: the factor that multiplies every learning rate, step by step.
//
// With s the step (from 0), T the total, W = warmup_steps, D = decay_steps, f = final_fraction:
//
//   s < W, every kind     (s + 1) / (W + 1)    linear warm-up; step W is the first at 1
//   CONSTANT              1
//   COSINE                1 + (f - 1) (1 - cos(pi x)) / 2,   x = (s - W) / (T - 1 - W)
//   LINEAR                1 + (f - 1) x,                     the same x
//   WARMUP_STABLE_DECAY   1 until step T - 1 - D, then 1 + (f - 1) (s - (T - 1 - D)) / D
//
// So exactly W steps lie below 1 before the peak, exactly D after the plateau, and the last step is
// at f exactly. Where the decay has no room (COSINE and LINEAR with W >= T - 1) the factor stays 1.
//
// Computed in double. COSINE calls the C library's cos, so its last bit may depend on that library.
#ifndef HEADWISE_OPTIM_SCHEDULE_H_
#define HEADWISE_OPTIM_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/proto/config.pb.h"

namespace headwise {

// The schedule's factor for a step, in [0, 1]; 0 <= step < total_steps (checked).
double ScheduleFactor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps);

// What is wrong with a schedule whatever the length of the run: an unknown kind, a negative number
// of steps, a final_fraction outside [0, 1], WARMUP_STABLE_DECAY without decay_steps.
// kInvalidArgument names the field, its value and its range. Fields that the kind does not use are
// checked too.
absl::Status ValidateSchedule(const ScheduleConfig& schedule);

// Also checks that it fits a run: total_steps >= 1, and the warm-up, for WARMUP_STABLE_DECAY with
// the decay, no longer than it. A trainer calls this once, before the first step.
absl::Status ValidateSchedule(const ScheduleConfig& schedule, std::int64_t total_steps);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_SCHEDULE_H_
