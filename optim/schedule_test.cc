// Each kind's end points are exact, and a run has as many steps below the peak as the configuration
// says.
#include "optim/schedule.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

ScheduleConfig Schedule(ScheduleKind kind, std::int64_t warmup, std::int64_t decay,
                        double final_fraction) {
  ScheduleConfig config;
  config.set_kind(kind);
  config.set_warmup_steps(warmup);
  config.set_decay_steps(decay);
  config.set_final_fraction(final_fraction);
  return config;
}

std::vector<double> Factors(const ScheduleConfig& config, std::int64_t total) {
  std::vector<double> factors;
  for (std::int64_t step = 0; step < total; ++step)
    factors.push_back(ScheduleFactor(config, step, total));
  return factors;
}

std::string Error(const absl::Status& status) { return std::string(status.message()); }

TEST(ScheduleFactor, ConstantIsOneAfterTheWarmup) {
  EXPECT_EQ(Factors(Schedule(CONSTANT, 3, 0, 0), 6),
            (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 1}));
  EXPECT_EQ(Factors(Schedule(CONSTANT, 0, 0, 0), 2), (std::vector<double>{1, 1}));
}

TEST(ScheduleFactor, AnUnsetScheduleIsOne) {
  EXPECT_EQ(ScheduleFactor(ScheduleConfig(), 0, 1), 1.0);
}

TEST(ScheduleFactor, LinearFallsFromThePeakToTheLastStep) {
  EXPECT_EQ(Factors(Schedule(LINEAR, 1, 0, 0.5), 6),
            (std::vector<double>{0.5, 1, 0.875, 0.75, 0.625, 0.5}));
}

TEST(ScheduleFactor, CosineIsExactAtBothEndsAndHalfWayBetween) {
  const std::vector<double> f = Factors(Schedule(COSINE, 2, 0, 0.1), 13);
  EXPECT_EQ(f[2], 1.0);
  EXPECT_EQ(f[12], 0.1);
  EXPECT_NEAR(f[7], 0.55, 1e-15);
  EXPECT_NEAR(f[4], 1 - 0.9 * 0.5 * (1 - std::cos(M_PI * 0.2)), 1e-15);
  for (std::size_t i = 3; i < f.size(); ++i) EXPECT_LT(f[i], f[i - 1]);
}

TEST(ScheduleFactor, WarmupStableDecayDecaysOverItsLastSteps) {
  EXPECT_EQ(Factors(Schedule(WARMUP_STABLE_DECAY, 1, 4, 0), 9),
            (std::vector<double>{0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0}));
}

TEST(ScheduleFactor, EveryDecayEndsAtTheFinalFractionExactly) {
  for (const double f : {0.0, 0.1, 1.0 / 3, 0.7, 1.0}) {
    for (const std::int64_t total : {7, 100, 1001}) {
      EXPECT_EQ(ScheduleFactor(Schedule(COSINE, 3, 0, f), total - 1, total), f);
      EXPECT_EQ(ScheduleFactor(Schedule(LINEAR, 3, 0, f), total - 1, total), f);
      EXPECT_EQ(ScheduleFactor(Schedule(WARMUP_STABLE_DECAY, 3, 4, f), total - 1, total), f);
      EXPECT_EQ(ScheduleFactor(Schedule(COSINE, 3, 0, f), 3, total), 1.0);
    }
  }
}

TEST(ScheduleFactor, ADecayWithoutRoomStaysAtOne) {
  EXPECT_EQ(Factors(Schedule(COSINE, 0, 0, 0), 1), (std::vector<double>{1}));
  EXPECT_EQ(Factors(Schedule(LINEAR, 1, 0, 0), 2), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(Factors(Schedule(LINEAR, 3, 0, 0), 3), (std::vector<double>{0.25, 0.5, 0.75}));
}

TEST(ScheduleFactor, StaysBetweenZeroAndOne) {
  for (const ScheduleKind kind : {CONSTANT, COSINE, LINEAR, WARMUP_STABLE_DECAY}) {
    for (const double f : Factors(Schedule(kind, 10, 20, 0.05), 97)) {
      EXPECT_GE(f, 0.05);
      EXPECT_LE(f, 1.0);
    }
  }
}

TEST(ScheduleFactorDeathTest, AStepOutsideTheRunIsAProgrammingError) {
  EXPECT_DEATH(ScheduleFactor(ScheduleConfig(), 5, 5), "step 5 of 5");
  EXPECT_DEATH(ScheduleFactor(ScheduleConfig(), -1, 5), "step -1 of 5");
}

TEST(ValidateSchedule, NamesTheFieldAndTheRange) {
  ScheduleConfig unknown;
  unknown.set_kind(static_cast<ScheduleKind>(9));
  EXPECT_EQ(
      Error(ValidateSchedule(unknown)),
      "optimizer.schedule.kind must be CONSTANT, COSINE, LINEAR or WARMUP_STABLE_DECAY, found 9");
  EXPECT_EQ(Error(ValidateSchedule(Schedule(COSINE, -1, 0, 0))),
            "optimizer.schedule.warmup_steps must be 0 or more, found -1");
  EXPECT_EQ(Error(ValidateSchedule(Schedule(COSINE, 0, -2, 0))),
            "optimizer.schedule.decay_steps must be 0 or more, found -2");
  EXPECT_EQ(Error(ValidateSchedule(Schedule(WARMUP_STABLE_DECAY, 0, 0, 0))),
            "optimizer.schedule.decay_steps must be 1 or more for WARMUP_STABLE_DECAY, found 0; "
            "without a decay the kind is CONSTANT");
  EXPECT_EQ(Error(ValidateSchedule(Schedule(LINEAR, 0, 0, 1.5))),
            "optimizer.schedule.final_fraction must be in [0, 1], found 1.5");
  EXPECT_EQ(Error(ValidateSchedule(Schedule(LINEAR, 0, 0, std::nan("")))),
            "optimizer.schedule.final_fraction must be in [0, 1], found nan");
  EXPECT_TRUE(ValidateSchedule(ScheduleConfig()).ok());
}

TEST(ValidateSchedule, MustFitTheRun) {
  EXPECT_EQ(Error(ValidateSchedule(Schedule(COSINE, 101, 0, 0), 100)),
            "optimizer.schedule.warmup_steps (101) must not exceed the steps of the run (100)");
  EXPECT_TRUE(ValidateSchedule(Schedule(COSINE, 100, 0, 0), 100).ok());
  EXPECT_EQ(Error(ValidateSchedule(Schedule(WARMUP_STABLE_DECAY, 60, 41, 0), 100)),
            "optimizer.schedule.warmup_steps (60) plus decay_steps (41) must not exceed the steps "
            "of the run (100)");
  EXPECT_FALSE(
      ValidateSchedule(
          Schedule(WARMUP_STABLE_DECAY, 1, std::numeric_limits<std::int64_t>::max(), 0), 100)
          .ok());
  EXPECT_TRUE(ValidateSchedule(Schedule(WARMUP_STABLE_DECAY, 60, 40, 0), 100).ok());
  // Other kinds have no use for decay_steps.
  EXPECT_TRUE(ValidateSchedule(Schedule(LINEAR, 60, 41, 0), 100).ok());
  EXPECT_EQ(Error(ValidateSchedule(ScheduleConfig(), 0)),
            "training.steps must be 1 or more, found 0");
}

}  // namespace
}  // namespace headwise
