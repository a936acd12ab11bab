// Training on ranks in threads: data parallelism changes no bit of a run, other layouts its rounding
// only; a run may go on under another layout.
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/io/checksum.h"
#include "core/parallel/comm/thread_ranks.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/standard_layout.h"
#include "model/test_config.h"
#include "model/train/trainer.h"
#include "model/train/training_rank.h"
#include "optim/defaults.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

class RanksTraining : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/ranks_training_",
                         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text", std::ios::binary);
    std::uint64_t state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text.put(static_cast<char>(i % 3 == 0 ? (state >> 60) : (i % 19)));
    }
  }

  RunConfig Config(const ModelConfig& model, std::int64_t steps = 4) const {
    RunConfig config;
    *config.mutable_model() = model;
    *config.mutable_optimizer() = DefaultOptimizerConfig();
    TrainingConfig& t = *config.mutable_training();
    t.set_steps(steps);
    t.set_batch_size(4);
    t.set_sequence_length(24);
    t.set_micro_batches(4);
    t.set_gemm(CONTRACT);
    t.set_seed(7);
    t.set_eval_every(2);
    t.set_eval_batches(3);
    t.set_checkpoint_every(2);
    config.mutable_data()->set_path(root_ + "/text");
    config.mutable_data()->set_validation_fraction(0.1);
    config.mutable_data()->set_document_separator(7);
    return config;
  }

  // Trains, or goes on, to the end.
  absl::StatusOr<TrainingSummary> Train(const RunConfig& config, const std::string& name,
                                        const char* mesh_text = "", bool sequence_parallel = false,
                                        FileHook hook = nullptr) {
    const std::string directory = root_ + "/" + name;
    const auto resume = *FindCheckpoint(directory);
    const Mesh mesh = *Mesh::Parse(mesh_text);
    if (mesh.size() == 1) {
      ThreadPool pool(1);
      auto run = TrainingRun::Create(config, directory, resume, pool);
      if (!run.ok()) return run.status();
      return (*run)->Run(nullptr, nullptr, pool);
    }
    const auto layout =
        StandardLayout(config.model(), mesh, {.sequence_parallel = sequence_parallel});
    if (!layout.ok()) return layout.status();
    absl::StatusOr<TrainingSummary> summary = absl::UnknownError("rank 0 said nothing");
    const absl::Status status =
        RunThreadRanks(static_cast<int>(mesh.size()), [&](Communicator& world) -> absl::Status {
          ThreadPool pool(1);
          auto rank = TrainingRank::Create(config, *layout, world);
          if (!rank.ok()) return rank.status();
          auto run = TrainingRun::Create(config, directory, resume, pool, {}, rank->get());
          if (!run.ok()) return run.status();
          (*run)->set_file_hook(hook);
          auto done = (*run)->Run(nullptr, nullptr, pool);
          if (world.rank() == 0) summary = done;
          return done.status();
        });
    if (!status.ok()) return status;
    return summary;
  }

  std::string Bits(const std::string& name, std::int64_t step) const {
    const std::string directory = absl::StrCat(root_, "/", name, "/step-", step);
    return absl::StrCat(*ChecksumFile(directory + "/model.safetensors"), " ",
                        *ChecksumFile(directory + "/optimizer.safetensors"));
  }

  std::string root_;
};

TEST_F(RanksTraining, DataParallelismChangesNoBit) {
  for (const ModelConfig& model : {EverythingConfig(), SparkConfig()}) {
    const RunConfig config = Config(model);
    const auto one = Train(config, model.name() + "1");
    ASSERT_TRUE(one.ok()) << one.status();
    for (const char* mesh : {"dp=2", "dp=4"}) {
      const std::string name = absl::StrCat(model.name(), mesh);
      const auto many = Train(config, name, mesh);
      ASSERT_TRUE(many.ok()) << many.status();
      EXPECT_EQ(Bits(name, 4), Bits(model.name() + "1", 4)) << name;
      EXPECT_EQ(many->first_loss, one->first_loss) << name;
      EXPECT_EQ(many->last_loss, one->last_loss) << name;
      EXPECT_EQ(*many->validation_loss, *one->validation_loss) << name;
    }
  }
}

TEST_F(RanksTraining, OtherLayoutsChangeTheRoundingOnly) {
  ModelConfig spark = SparkConfig();
  spark.mutable_ffn()->mutable_moe()->set_num_experts(8);
  for (ModelConfig model : {EverythingConfig(), spark}) {
    model.set_vocab_size(20);
    const RunConfig config = Config(model);
    const auto one = Train(config, model.name() + "1");
    ASSERT_TRUE(one.ok()) << one.status();
    for (const char* mesh : {"tp=2", "cp=2", "dp=2,tp=2", "dp=2,tp=2,ep=4"}) {
      for (const bool sp : {false, true}) {
        const std::string name = absl::StrCat(model.name(), mesh, sp);
        const auto many = Train(config, name, mesh, sp);
        ASSERT_TRUE(many.ok()) << name << ": " << many.status();
        EXPECT_NEAR(many->last_loss, one->last_loss, 2e-4) << name;
        EXPECT_NEAR(*many->validation_loss, *one->validation_loss, 2e-4) << name;
      }
    }
  }
}

TEST_F(RanksTraining, GoesOnWithTheSameBitsAndUnderAnotherLayout) {
  ModelConfig model = EverythingConfig();
  model.set_vocab_size(20);
  ASSERT_TRUE(Train(Config(model), "whole", "dp=2,tp=2").ok());
  RunConfig half = Config(model);
  half.mutable_training()->set_checkpoint_every(1);
  // The disk is full when step 3 is saved; what was saved stays.
  const auto failed =
      Train(half, "halves", "dp=2,tp=2", false, [](FileOperation, const std::string& path) {
        return absl::StrContains(path, "step-3") ? ENOSPC : 0;
      });
  EXPECT_FALSE(failed.ok());
  EXPECT_TRUE(absl::StrContains(failed.status().message(), "No space left")) << failed.status();
  EXPECT_EQ((*FindCheckpoint(root_ + "/halves"))->state.step(), 2);
  const auto rest = Train(Config(model), "halves", "dp=2,tp=2");
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->first_step, 2);
  EXPECT_EQ(Bits("halves", 4), Bits("whole", 4));

  for (const char* mesh : {"", "tp=2", "cp=2,tp=2"}) {
    const std::string name = absl::StrCat("other", mesh);
    fs::create_directories(root_ + "/" + name);
    fs::copy(root_ + "/halves/step-2", root_ + "/" + name + "/step-2", fs::copy_options::recursive);
    const auto other = Train(Config(model), name, mesh);
    ASSERT_TRUE(other.ok()) << mesh << ": " << other.status();
    EXPECT_NEAR(other->last_loss, rest->last_loss, 1e-4) << mesh;
  }
}

TEST_F(RanksTraining, AnErrorOfOneRankIsEveryRanks) {
  const RunConfig config = Config(EverythingConfig());
  std::ofstream(root_ + "/taken") << "a file where the run's directory should be";
  const auto taken = Train(config, "taken", "dp=2");
  ASSERT_FALSE(taken.ok());
  RunConfig odd = Config(EverythingConfig());
  odd.mutable_training()->set_micro_batches(1);
  const auto few = Train(odd, "few", "dp=2");
  ASSERT_FALSE(few.ok());
  EXPECT_TRUE(absl::StrContains(few.status().message(),
                                "mesh: dp=2 ranks share out training.micro_batches, found 1; "
                                "expected a multiple of 2"))
      << few.status();
}

}  // namespace
}  // namespace headwise
