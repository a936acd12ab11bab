#include "model/train/checkpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/test_config.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Two parameters and their momentum, every element set to one value.
struct State {
  Parameter a, b;
  Tensor momentum;

  explicit State(float value) {
    a = {.name = "a", .value = Tensor::Empty({3, 5}, DType::kF32, Device::kCpu)};
    b = {.name = "b", .value = Tensor::Empty({7}, DType::kF32, Device::kCpu)};
    momentum = Tensor::Empty({3, 5}, DType::kF32, Device::kCpu);
    for (const Tensor& t : {a.value, b.value, momentum}) {
      for (std::int64_t i = 0; i < t.size(); ++i)
        t.data<float>()[i] = value + static_cast<float>(i);
    }
  }
  std::vector<Parameter*> parameters() { return {&a, &b}; }
  std::vector<NamedTensor> optimizer() { return {{"momentum/a", momentum}}; }
};

CheckpointState At(std::int64_t step) {
  CheckpointState state;
  state.set_step(step);
  *state.mutable_config()->mutable_model() = PlainConfig();
  state.mutable_config()->mutable_training()->set_batch_size(4);
  state.set_next_sequence(4 * step);
  return state;
}

absl::Status Save(const std::string& run, std::int64_t step, float value, std::int64_t keep = 0,
                  const FileHook& hook = nullptr) {
  State state(value);
  return SaveCheckpoint(run, At(step), state.parameters(), state.optimizer(), keep, hook);
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    run_ = testing::TempDir() + "/run";
    fs::remove_all(run_);
    fs::create_directories(run_);
  }
  std::string run_;
};

// The first elements of a, b and the momentum of a checkpoint.
std::vector<float> Load(const FoundCheckpoint& found) {
  State state(-1);
  EXPECT_TRUE(LoadWeights(found, state.parameters()).ok());
  EXPECT_TRUE(LoadOptimizerState(found, state.optimizer()).ok());
  return {state.a.value.data<float>()[0], state.b.value.data<float>()[0],
          state.momentum.data<float>()[0]};
}

TEST_F(Checkpoint, RoundTripsAndTheNewestIsFound) {
  EXPECT_FALSE(FindCheckpoint(run_)->has_value());
  EXPECT_FALSE(FindCheckpoint(run_ + "/nowhere")->has_value());
  ASSERT_TRUE(Save(run_, 9, 90).ok());
  ASSERT_TRUE(Save(run_, 10, 100).ok());
  const FoundCheckpoint found = **FindCheckpoint(run_);
  EXPECT_EQ(found.state.step(), 10);
  EXPECT_EQ(found.state.config().model().name(), "plain");
  EXPECT_THAT(Load(found), testing::ElementsAre(100, 100, 100));
}

TEST_F(Checkpoint, OnlyTheNewestAreKept) {
  for (int step = 1; step <= 5; ++step) ASSERT_TRUE(Save(run_, step, 1, 2).ok());
  EXPECT_FALSE(fs::exists(run_ + "/step-3"));
  EXPECT_TRUE(fs::exists(run_ + "/step-4"));
  EXPECT_TRUE(fs::exists(run_ + "/step-5"));
}

TEST_F(Checkpoint, ABrokenOneIsNeverChosen) {
  const auto damage = [&](const char* file, auto edit) {
    fs::remove_all(run_);
    fs::create_directories(run_);
    ASSERT_TRUE(Save(run_, 1, 10).ok());
    ASSERT_TRUE(Save(run_, 2, 20).ok());
    edit(run_ + "/step-2/" + file);
    const FoundCheckpoint found = **FindCheckpoint(run_);
    EXPECT_EQ(found.state.step(), 1) << file;
    ASSERT_EQ(found.rejected.size(), 1u);
    EXPECT_THAT(found.rejected[0], HasSubstr("step-2"));
  };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const auto truncate = [](const std::string& path) {
    fs::resize_file(path, fs::file_size(path) - 1);
  };
  const auto flip = [](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x7e');
  };
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    damage(file, remove);
    damage(file, truncate);
    damage(file, flip);
  }
  damage("state.textproto", remove);
  damage("state.textproto",
         [](const std::string& path) { std::ofstream(path) << "step: 2 files {"; });
  damage("state.textproto", [](const std::string& path) {
    std::ofstream(path) << "format_version: 1 prepare_qkv_contract: 1 newton_schulz_contract: 1 "
                           "muon_step_contract: 2";
  });
}

TEST_F(Checkpoint, ForItsWeightsOneNeedsNoOptimizerState) {
  ASSERT_TRUE(Save(run_, 1, 10).ok());
  ASSERT_TRUE(Save(run_, 2, 20).ok());
  const std::string optimizer = run_ + "/step-2/optimizer.safetensors";
  fs::resize_file(optimizer, fs::file_size(optimizer) - 1);
  const auto weight = [](const std::string& path) {
    const absl::StatusOr<FoundCheckpoint> found = OpenRunOrCheckpoint(path);
    if (!found.ok()) return std::string(found.status().message());
    EXPECT_TRUE(found->rejected.empty());
    State state(-1);
    EXPECT_TRUE(LoadWeights(*found, state.parameters()).ok());
    return absl::StrCat(state.a.value.data<float>()[0]);
  };
  EXPECT_EQ(weight(run_), "20");
  fs::remove(optimizer);
  EXPECT_EQ(weight(run_), "20");
  EXPECT_EQ(weight(run_ + "/step-2"), "20");
  fs::remove(run_ + "/step-2/model.safetensors");
  EXPECT_THAT(weight(run_ + "/step-2"), HasSubstr("model.safetensors: expected a file of"));
  // A run that goes on needs both.
  fs::remove(run_ + "/step-1/optimizer.safetensors");
  EXPECT_EQ(OpenRunOrCheckpoint(run_)->rejected.size(), 1u);
  EXPECT_THAT(std::string(OpenCheckpoint(run_ + "/step-1").status().message()),
              HasSubstr("step-1/optimizer.safetensors: expected a file of"));
  EXPECT_EQ(FindCheckpoint(run_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(Checkpoint, WhenEveryOneIsBrokenTheErrorSaysSo) {
  ASSERT_TRUE(Save(run_, 1, 10).ok());
  fs::remove(run_ + "/step-1/model.safetensors");
  const absl::Status status = FindCheckpoint(run_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none of its 1 checkpoints is whole"));
}

TEST_F(Checkpoint, AnotherFormatVersionIsRefusedByName) {
  ASSERT_TRUE(Save(run_, 1, 10).ok());
  std::ifstream in(run_ + "/step-1/state.textproto");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  text.replace(text.find("format_version: 1"), 17, "format_version: 99");
  std::ofstream(run_ + "/step-1/state.textproto") << text;
  const absl::Status status = FindCheckpoint(run_).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("format_version: expected version 1, found 99"));
}

TEST_F(Checkpoint, AStateThatContradictsItselfIsBroken) {
  const auto edited = [&](const std::string& from, const std::string& to) {
    fs::remove_all(run_);
    fs::create_directories(run_);
    EXPECT_TRUE(Save(run_, 1, 10).ok());
    const std::string path = run_ + "/step-1/state.textproto";
    std::ifstream in(path);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(path) << text;
    return OpenCheckpoint(run_ + "/step-1").status();
  };
  EXPECT_THAT(std::string(edited("\nstep: 1\n", "\nstep: 800\n").message()),
              HasSubstr("do not fit one another"));
  EXPECT_THAT(std::string(edited("\nstep: 1\n", "\nstep: -8\n").message()),
              HasSubstr("do not fit one another"));
  EXPECT_THAT(std::string(edited("next_sequence: 4", "next_sequence: 5").message()),
              HasSubstr("do not fit one another"));
  const absl::Status config = edited("head_dim: 8", "head_dim: 7");
  EXPECT_EQ(config.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(config.message()), HasSubstr("model.attention.head_dim"));
}

TEST_F(Checkpoint, TensorsOfAnotherModelAreNamedAndNothingIsLoaded) {
  ASSERT_TRUE(Save(run_, 1, 10).ok());
  const FoundCheckpoint found = **FindCheckpoint(run_);
  State state(-1);
  state.b.value = Tensor::Zeros({8}, DType::kF32, Device::kCpu);
  EXPECT_THAT(std::string(LoadWeights(found, state.parameters()).message()),
              HasSubstr("b: expected F32 [8], found F32 [7]"));
  EXPECT_EQ(state.a.value.data<float>()[0], -1);
  EXPECT_THAT(std::string(LoadWeights(found, {&state.a}).message()), HasSubstr("unknown tensor b"));
  Parameter c{.name = "c", .value = state.a.value};
  EXPECT_THAT(std::string(LoadWeights(found, {&c}).message()),
              HasSubstr("expected a tensor c, found none"));
}

TEST_F(Checkpoint, AFailingDiskLeavesTheOldOneAndNoTemporaries) {
  ASSERT_TRUE(Save(run_, 1, 10).ok());
  bool succeeded = false;
  for (int n = 0; !succeeded; ++n) {
    ASSERT_LT(n, 500);
    int calls = 0;
    bool failed_after_commit = false;
    const absl::Status status =
        Save(run_, 2, 20, 0, [&](FileOperation operation, const std::string&) {
          // Cleaning up is not what fails on a full disk.
          if (operation == FileOperation::kRemove) return 0;
          return calls++ == n ? ENOSPC : 0;
        });
    succeeded = status.ok();
    if (succeeded) break;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    failed_after_commit = fs::exists(run_ + "/step-2");
    const FoundCheckpoint found = **FindCheckpoint(run_);
    EXPECT_EQ(found.state.step(), failed_after_commit ? 2 : 1);
    fs::remove_all(run_ + "/step-2");
    for (const auto& entry : fs::directory_iterator(run_)) {
      EXPECT_EQ(entry.path().filename(), "step-1") << "after failing operation " << n;
    }
  }
}

// The child process kills itself at the n-th write, sync or rename of a save.
TEST_F(Checkpoint, KilledAtAnyOperationTheNextStartFindsAWholeOne) {
  ASSERT_TRUE(Save(run_, 1, 10, 1).ok());
  int kills = 0;
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 500);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int calls = 0;
      const absl::Status status = Save(run_, 2, 20, 1, [&](FileOperation, const std::string&) {
        if (calls++ == n) kill(getpid(), SIGKILL);
        return 0;
      });
      _exit(status.ok() ? 0 : 1);
    }
    int outcome;
    ASSERT_EQ(waitpid(child, &outcome, 0), child);
    const FoundCheckpoint found = **FindCheckpoint(run_);
    EXPECT_TRUE(found.rejected.empty()) << "killed at operation " << n << ": " << found.rejected[0];
    const float value = found.state.step() == 2 ? 20 : 10;
    EXPECT_THAT(Load(found), testing::ElementsAre(value, value, value))
        << "killed at operation " << n;
    if (WIFEXITED(outcome)) {
      EXPECT_EQ(WEXITSTATUS(outcome), 0);
      EXPECT_EQ(found.state.step(), 2);
      break;
    }
    ++kills;
    // Start again from the old checkpoint.
    fs::remove_all(run_ + "/step-2");
    if (!fs::exists(run_ + "/step-1")) {
      ASSERT_TRUE(Save(run_, 1, 10, 1).ok());
    }
  }
  EXPECT_GT(kills, 12);  // three files: create, write, sync, rename each; the directory's own
}

}  // namespace
}  // namespace headwise
