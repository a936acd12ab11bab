// A run is a function of its configuration and its text: threads, signals, kills and resumption
// change no bit.
#include "model/train/trainer.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/io/checksum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/test_config.h"
#include "optim/defaults.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kSteps = 40;

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/trainer";
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text", std::ios::binary);
    std::uint64_t state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text.put(static_cast<char>(i % 3 == 0 ? (state >> 60) : (i % 19)));
    }
  }

  RunConfig Config() const {
    RunConfig config;
    *config.mutable_model() = EverythingConfig();
    *config.mutable_optimizer() = DefaultOptimizerConfig();
    TrainingConfig& t = *config.mutable_training();
    t.set_steps(kSteps);
    t.set_batch_size(4);
    t.set_sequence_length(24);
    t.set_micro_batches(2);
    t.set_gemm(CONTRACT);
    t.set_seed(7);
    t.set_eval_every(10);
    t.set_eval_batches(2);
    t.set_checkpoint_every(20);
    config.mutable_data()->set_path(root_ + "/text");
    config.mutable_data()->set_validation_fraction(0.1);
    config.mutable_data()->set_document_separator(-1);
    return config;
  }

  std::string Dir(const std::string& name) const { return root_ + "/" + name; }

  // Starts, or resumes, a run and trains to the end.
  absl::StatusOr<TrainingSummary> Train(const RunConfig& config, const std::string& name,
                                        int threads = 1, FileHook hook = nullptr,
                                        const StopSignal* stop = nullptr) {
    ThreadPool pool(threads);
    absl::StatusOr<std::optional<FoundCheckpoint>> resume = FindCheckpoint(Dir(name));
    if (!resume.ok()) return resume.status();
    auto run = TrainingRun::Create(config, Dir(name), *resume, pool);
    if (!run.ok()) return run.status();
    (*run)->set_file_hook(std::move(hook));
    return (*run)->Run(nullptr, stop, pool);
  }

  // Checksums of weights and optimizer state.
  std::pair<std::uint64_t, std::uint64_t> Bits(const std::string& name, std::int64_t step) const {
    const std::string directory = absl::StrCat(Dir(name), "/step-", step);
    return {*ChecksumFile(directory + "/model.safetensors"),
            *ChecksumFile(directory + "/optimizer.safetensors")};
  }

  void ExpectWholeMetrics(const std::string& name, std::int64_t steps) const {
    const std::vector<StepMetrics> metrics = *ReadMetrics(Dir(name) + "/metrics.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(metrics.size()), steps);
    for (std::int64_t i = 0; i < steps; ++i) EXPECT_EQ(metrics[i].step, i + 1);
  }

  std::string root_;
};

TEST_F(TrainerTest, LearnsWritesItsFilesAndSummarises) {
  const TrainingSummary summary = *Train(Config(), "run");
  EXPECT_EQ(summary.steps, kSteps);
  EXPECT_FALSE(summary.interrupted);
  EXPECT_LT(summary.last_loss, summary.first_loss - 0.3);
  ASSERT_TRUE(summary.validation_loss.has_value());
  EXPECT_LT(*summary.validation_loss, summary.first_loss);
  ExpectWholeMetrics("run", kSteps);
  for (const char* file :
       {"run.textproto", "loss.svg", "step-20/model.safetensors", "step-40/state.textproto"}) {
    EXPECT_TRUE(fs::exists(Dir("run") + "/" + file)) << file;
  }
}

TEST_F(TrainerTest, AnyNumberOfThreadsGivesTheSameBytes) {
  for (const Gemm gemm : {CONTRACT, ONEDNN}) {
    for (const ComputeDtype dtype : {FP32, BF16}) {
      RunConfig config = Config();
      config.mutable_training()->set_steps(20);
      config.mutable_training()->set_gemm(gemm);
      config.mutable_training()->set_compute_dtype(dtype);
      const std::string name = absl::StrCat(Gemm_Name(gemm), ComputeDtype_Name(dtype));
      for (int threads = 1; threads <= 3; ++threads) {
        ASSERT_TRUE(Train(config, absl::StrCat(name, threads), threads).ok());
        EXPECT_EQ(Bits(absl::StrCat(name, threads), 20), Bits(name + "1", 20))
            << name << ", " << threads;
      }
    }
  }
}

TEST_F(TrainerTest, KilledAndResumedEqualsNeverStopped) {
  ASSERT_TRUE(Train(Config(), "whole").ok());
  // Dies without warning in the middle of writing its second checkpoint.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FileHook die = [](FileOperation operation, const std::string& path) {
      if (operation == FileOperation::kSync && path.find("step-40") != std::string::npos)
        kill(getpid(), SIGKILL);
      return 0;
    };
    const absl::Status status = Train(Config(), "killed", 1, die).status();
    _exit(status.ok() ? 0 : 1);
  }
  int outcome;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  ASSERT_TRUE(WIFSIGNALED(outcome)) << "the child was to be killed";
  ASSERT_FALSE(fs::exists(Dir("killed") + "/step-40"));
  const TrainingSummary summary = *Train(Config(), "killed");
  EXPECT_EQ(summary.first_step, 20);
  EXPECT_EQ(summary.steps, 20);
  EXPECT_EQ(Bits("killed", 40), Bits("whole", 40));
  ExpectWholeMetrics("killed", kSteps);
  EXPECT_EQ((*ReadMetrics(Dir("killed") + "/metrics.jsonl"))[39].loss,
            (*ReadMetrics(Dir("whole") + "/metrics.jsonl"))[39].loss);
}

TEST_F(TrainerTest, AStopSignalSavesAndTheRunGoesOnFromThere) {
  ASSERT_TRUE(Train(Config(), "whole").ok());
  {
    const StopSignal stop;
    int saves = 0;
    // The signal comes while step 20 is being saved.
    const FileHook hook = [&](FileOperation, const std::string&) {
      if (saves++ == 0) raise(SIGTERM);
      return 0;
    };
    const TrainingSummary stopped = *Train(Config(), "stopped", 1, hook, &stop);
    EXPECT_TRUE(stopped.interrupted);
    EXPECT_EQ(stopped.steps, 20);
    EXPECT_EQ(stop.signal(), SIGTERM);
  }
  ASSERT_TRUE(Train(Config(), "stopped").ok());
  EXPECT_EQ(Bits("stopped", 40), Bits("whole", 40));
}

TEST_F(TrainerTest, AFullDiskIsAnErrorAndTheLastCheckpointStays) {
  int writes = 0;
  const FileHook full = [&](FileOperation operation, const std::string& path) {
    const bool second = path.find("step-40") != std::string::npos;
    return second && operation == FileOperation::kWrite && ++writes > 0 ? ENOSPC : 0;
  };
  const absl::Status status = Train(Config(), "full", 1, full).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*FindCheckpoint(Dir("full")))->state.step(), 20);
  ASSERT_TRUE(Train(Config(), "full").ok());
  ExpectWholeMetrics("full", kSteps);
}

TEST_F(TrainerTest, TwoProcessesCannotTrainInOneDirectory) {
  ThreadPool pool(1);
  const auto first = TrainingRun::Create(Config(), Dir("run"), std::nullopt, pool);
  ASSERT_TRUE(first.ok());
  const absl::Status second =
      TrainingRun::Create(Config(), Dir("run"), std::nullopt, pool).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another process is training there"));
}

TEST_F(TrainerTest, WeightsThatBrokeDownEndTheRun) {
  RunConfig config = Config();
  config.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e30);
  config.mutable_optimizer()->mutable_muon()->set_learning_rate(1e30);
  const absl::Status status = Train(config, "broken").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite"));
}

TEST_F(TrainerTest, WeightsThatAreNotNumbersAreNeverSaved) {
  RunConfig config = Config();
  config.mutable_training()->set_steps(1);
  // The first update overflows; its gradients were still finite.
  config.mutable_optimizer()->mutable_muon()->set_learning_rate(3e38);
  config.mutable_optimizer()->mutable_adamw()->set_learning_rate(3e38);
  const absl::Status status = Train(config, "overflow").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not finite after step 1"));
  EXPECT_FALSE(fs::exists(Dir("overflow") + "/step-1"));
}

TEST_F(TrainerTest, ANewRunDoesNotWriteOverAnotherOne) {
  fs::create_directories(Dir("used"));
  std::ofstream(Dir("used") + "/metrics.jsonl") << "{\"step\":1}\n";
  const absl::Status status = Train(Config(), "used").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds metrics.jsonl of another run"));
  EXPECT_EQ(fs::file_size(Dir("used") + "/metrics.jsonl"), 11u);
}

TEST_F(TrainerTest, AFailedStartLeavesNothingInTheWay) {
  ThreadPool pool(1);
  {
    const auto run = TrainingRun::Create(Config(), Dir("start"), std::nullopt, pool);
    ASSERT_TRUE(run.ok());
  }
  EXPECT_TRUE(Train(Config(), "start").ok());
}

TEST_F(TrainerTest, AnotherTextIsAnotherRun) {
  RunConfig config = Config();
  config.mutable_training()->set_steps(20);
  ASSERT_TRUE(Train(config, "run").ok());
  // The same length, one letter changed at the end.
  fs::copy_file(Dir("text"), Dir("other"));
  std::fstream(Dir("other"), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put(0);
  config.mutable_training()->set_steps(40);
  config.mutable_data()->set_path(Dir("other"));
  const absl::Status status = Train(config, "run").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is another text"));
  // The same text in another place is the same run.
  fs::copy_file(Dir("text"), Dir("moved"));
  config.mutable_data()->set_path(Dir("moved"));
  EXPECT_TRUE(Train(config, "run").ok());
}

TEST_F(TrainerTest, InitTakesTheWeightsOfAnotherRun) {
  ASSERT_TRUE(Train(Config(), "source").ok());
  ThreadPool pool(1);
  auto run = *TrainingRun::Create(Config(), Dir("fresh"), std::nullopt, pool);
  const double before = *run->Validate(pool);
  const ModelSource source = *ModelSource::Open(Dir("source"));
  ASSERT_TRUE(run->InitializeFrom(source, pool).ok());
  EXPECT_EQ(run->step(), 0);
  EXPECT_LT(*run->Validate(pool), before - 0.3);
  RunConfig wider = Config();
  wider.mutable_model()->mutable_ffn()->set_hidden_dim(wider.model().ffn().hidden_dim() + 8);
  auto other = *TrainingRun::Create(wider, Dir("wider"), std::nullopt, pool);
  EXPECT_FALSE(other->InitializeFrom(source, pool).ok());
}

TEST_F(TrainerTest, BadTextIsAClearError) {
  ThreadPool pool(1);
  const auto error = [&](const std::string& path) {
    RunConfig config = Config();
    config.mutable_data()->set_path(path);
    return TrainingRun::Create(config, Dir("run"), std::nullopt, pool).status();
  };
  EXPECT_EQ(error(Dir("missing")).code(), absl::StatusCode::kNotFound);
  std::ofstream(Dir("empty")).flush();
  EXPECT_THAT(std::string(error(Dir("empty")).message()), HasSubstr("empty"));
  std::ofstream(Dir("letters")) << std::string(4000, 'x');  // 120, past the vocabulary of 19
  EXPECT_THAT(std::string(error(Dir("letters")).message()), HasSubstr("120"));
}

}  // namespace
}  // namespace headwise
