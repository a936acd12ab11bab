// The optimizer on ranks in threads: values, state, norm and clipping are those of a single rank
// with the same gradients, bit for bit, whatever cuts the parameters; all ranks skip together; and
// what is sent is what the account says.
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/tensor_layout.h"
#include "gtest/gtest.h"
#include "optim/defaults.h"
#include "optim/optimizer.h"
#include "optim/optimizer_communication.h"
#include "optim/optimizer_kernels.h"
#include "optim/testing/counting_communicator.h"
#include "optim/testing/rank_model.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 3;

struct Case {
  std::string name;
  RankModelOptions options;
};

Mesh ParseMesh(const char* text) { return *Mesh::Parse(text); }

// tp = 4 over 2 kv groups: each is on two ranks.
RankModelOptions KvReplicated() {
  return {.mesh = *ParseMesh("tp=4").WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 2}}),
          .geometry = {.query_heads = 8, .kv_heads = 2, .head_dim = 6},
          .kv_axis = "tp_kv"};
}

// One kv group, on all ranks.
RankModelOptions OneKvGroup() {
  return {.mesh = *ParseMesh("tp=2").WithSubAxes("tp", {{"tp_kv", 1}, {"tp_rep", 2}}),
          .geometry = {.query_heads = 8, .kv_heads = 1, .head_dim = 6},
          .kv_axis = "tp_kv"};
}

RankModelOptions Experts(const char* mesh) {
  return {.mesh = ParseMesh(mesh),
          .experts_in = "expert: S(0)@ep",
          .experts_out = "expert: S(0)@ep",
          .norm = ""};
}

std::vector<Case> Cases() {
  return {{"tp=2", {.mesh = ParseMesh("tp=2")}},
          {"tp=4", {.mesh = ParseMesh("tp=4"), .norm = ""}},
          {"dp=2", {.mesh = ParseMesh("dp=2")}},
          {"dp=2,tp=2", {.mesh = ParseMesh("dp=2,tp=2")}},
          {"dp=2,tp=2,ep=2", Experts("dp=2,tp=2,ep=2")},
          {"tp=4,ep=4", Experts("tp=4,ep=4")},
          {"dp=4,ep=2", Experts("dp=4,ep=2")},
          {"kv replicated", KvReplicated()},
          {"one kv group", OneKvGroup()}};
}

OptimizerConfig Config(MuonGranularity granularity) {
  OptimizerConfig config = DefaultOptimizerConfig();
  config.mutable_muon()->set_granularity(granularity);
  config.mutable_muon()->set_head_group_size(2);
  config.mutable_muon()->set_weight_decay(0.1);
  config.mutable_adamw()->set_weight_decay(0.2);
  config.mutable_schedule()->set_kind(LINEAR);
  config.mutable_schedule()->set_warmup_steps(2);
  config.set_balancing_rate(0.01);
  return config;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw_data(), b.raw_data(), a.bytes()) == 0;
}

// What a single rank does: values, state and reports after kSteps.
struct Run {
  Parameters parameters;
  std::vector<NamedTensor> state;
  std::vector<StepReport> reports;
};

Run OnOneRank(const RankModel& model, const OptimizerConfig& config) {
  Run run = {.parameters = model.Whole()};
  ThreadPool pool(1);
  const auto optimizer = *Optimizer::Create(config, Pointers(run.parameters));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    RankModel::FillGradients(run.parameters, static_cast<std::uint64_t>(step) + 1);
    run.reports.push_back(optimizer->Step(step, 2 * kSteps, pool));
  }
  run.state = optimizer->State();
  return run;
}

// Collects what differs, from all ranks.
class Differences {
 public:
  void Add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    text_ += what + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::string text_;
};

absl::Status CompareRank(const RankModel& model, const Mesh& mesh, const OptimizerConfig& config,
                         const Run& expected, Communicator& world, Differences& differences) {
  HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
  const Parameters whole = model.Whole();
  const Parameters mine = model.Share(ranks.rank(), whole);
  ThreadPool pool(2);
  HW_ASSIGN_OR_RETURN(const auto optimizer, Optimizer::Create(config, Pointers(mine), &ranks));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    RankModel::FillGradients(whole, static_cast<std::uint64_t>(step) + 1);
    model.ShareGradients(ranks.rank(), whole, mine);
    const StepReport report = optimizer->Step(step, 2 * kSteps, pool);
    HW_RETURN_IF_ERROR(report.status);
    const StepReport& single = expected.reports[static_cast<std::size_t>(step)];
    if (report.gradient_norm != single.gradient_norm || report.skipped != single.skipped ||
        report.clip_factor != single.clip_factor) {
      differences.Add(absl::StrCat("norm of step ", step));
    }
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Tensor share = LocalShare(model.types()[i], ranks.rank(), expected.parameters[i]->value);
    if (!SameBits(share, mine[i]->value)) differences.Add("value of " + mine[i]->name);
  }
  const std::vector<NamedTensor> state = optimizer->State();
  if (state.size() != expected.state.size()) differences.Add("the list of state");
  for (std::size_t i = 0; i < state.size() && i < expected.state.size(); ++i) {
    const LayoutType type = LayoutOf(state[i].tensor);
    if (state[i].name != expected.state[i].name) differences.Add("a name of state");
    Tensor assembled = state[i].tensor;
    if (state[i].name != "adamw.updates") {
      HW_ASSIGN_OR_RETURN(assembled, Assemble(ranks, type, state[i].tensor));
    }
    if (!SameBits(assembled, expected.state[i].tensor)) differences.Add(state[i].name);
  }
  const auto& assignments = optimizer->assignments();
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    if (assignments[i].elements != expected.parameters[i]->value.size()) {
      differences.Add("elements of " + assignments[i].name);
    }
  }
  return absl::OkStatus();
}

void ExpectOneRanksBits(const Case& c, const OptimizerConfig& config, const std::string& what) {
  const RankModel model(c.options);
  const Run expected = OnOneRank(model, config);
  Differences differences;
  const absl::Status status =
      RunThreadRanks(static_cast<int>(c.options.mesh.size()), [&](Communicator& world) {
        return CompareRank(model, c.options.mesh, config, expected, world, differences);
      });
  EXPECT_TRUE(status.ok()) << c.name << ", " << what << ": " << status;
  EXPECT_EQ(differences.text(), "") << c.name << ", " << what;
}

TEST(OptimizerOnRanks, EveryLayoutAndGranularityHasTheBitsOfOneRank) {
  for (const Case& c : Cases()) {
    for (const MuonGranularity granularity :
         {HEAD, KV_GROUP, PROJECTION, HEAD_GROUP, WHOLE_MATRIX}) {
      OptimizerConfig config = Config(granularity);
      if (granularity == HEAD_GROUP && c.options.geometry.kv_heads == 1) {
        config.mutable_muon()->set_head_group_size(1);
      }
      ExpectOneRanksBits(c, config, MuonGranularity_Name(granularity));
    }
  }
}

// Four key heads over four ranks: groups of two heads cross ranks, and those of query heads do not.
TEST(OptimizerOnRanks, HeadGroupsMayCrossRanks) {
  OptimizerConfig config = Config(HEAD_GROUP);
  for (const std::int64_t size : {2, 4}) {
    config.mutable_muon()->set_head_group_size(size);
    ExpectOneRanksBits({"tp=4", {.mesh = ParseMesh("tp=4")}}, config, absl::StrCat(size, " heads"));
  }
}

TEST(OptimizerOnRanks, EveryScaleIsThatOfTheWholeMatrix) {
  for (const MuonScale scale : {ASPECT, MATCH_RMS_ADAMW, SPECTRAL, UNIT}) {
    for (const bool nesterov : {true, false}) {
      OptimizerConfig config = Config(WHOLE_MATRIX);
      config.mutable_muon()->set_scale(scale);
      config.mutable_muon()->set_disable_nesterov(!nesterov);
      config.mutable_muon()->set_coefficients(nesterov ? QUINTIC5 : POLAR_EXPRESS8);
      ExpectOneRanksBits({"dp=2,tp=2", {.mesh = ParseMesh("dp=2,tp=2")}}, config,
                         MuonScale_Name(scale));
    }
  }
}

TEST(OptimizerOnRanks, EveryClipScopeHasTheBitsOfOneRank) {
  for (const ClipScope scope : {CLIP_NONE, CLIP_ADAMW, CLIP_ALL}) {
    for (const MuonGranularity granularity : {HEAD, PROJECTION}) {
      OptimizerConfig config = Config(granularity);
      config.set_clip_scope(scope);
      ExpectOneRanksBits({"kv replicated", KvReplicated()}, config, ClipScope_Name(scope));
    }
  }
}

// One element of one rank's share.
TEST(OptimizerOnRanks, AnUnusableGradientOnOneRankIsSkippedByAll) {
  for (const char* name : {"embedding", "wqkv", "wqkv_bias", "wo", "experts_in", "experts_out"}) {
    for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity(), 0x1p96f}) {
      for (std::int64_t bad_rank = 0; bad_rank < 4; ++bad_rank) {
        RankModelOptions options = Experts("tp=4,ep=4");
        options.experts_out = "S(2)@tp";
        const RankModel model(options);
        Differences differences;
        const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
          HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(options.mesh, world));
          const Parameters whole = model.Whole(), mine = model.Share(ranks.rank(), whole);
          ThreadPool pool(1);
          HW_ASSIGN_OR_RETURN(const auto optimizer,
                              Optimizer::Create(Config(PROJECTION), Pointers(mine), &ranks));
          RankModel::FillGradients(whole, 1);
          model.ShareGradients(ranks.rank(), whole, mine);
          for (const auto& p : mine) {
            if (p->name == name && ranks.rank() == bad_rank) {
              p->gradient.data<float>()[p->gradient.size() - 1] = bad;
            }
          }
          const StepReport report = optimizer->Step(0, kSteps, pool);
          HW_RETURN_IF_ERROR(report.status);
          if (!report.skipped || report.non_finite != name) {
            differences.Add(absl::StrCat("rank ", ranks.rank(), " did not skip for ", name));
          }
          for (std::size_t i = 0; i < mine.size(); ++i) {
            if (!SameBits(mine[i]->value,
                          LocalShare(model.types()[i], ranks.rank(), whole[i]->value))) {
              differences.Add(mine[i]->name + " was written");
            }
          }
          for (const NamedTensor& state : optimizer->State()) {
            if (!SameBits(state.tensor, Tensor::Zeros(state.tensor.shape(), state.tensor.dtype(),
                                                      Device::kCpu))) {
              differences.Add(state.name + " was written");
            }
          }
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(differences.text(), "") << name << " " << bad << " on rank " << bad_rank;
      }
    }
  }
}

// The first unusable parameter by name, although another rank has found another one.
TEST(OptimizerOnRanks, AllRanksNameTheSameUnusableParameter) {
  const Mesh mesh = ParseMesh("dp=2,tp=2");
  const RankModel model({.mesh = mesh});
  Differences differences;
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
    const Parameters mine = model.Share(ranks.rank(), model.Whole());
    ThreadPool pool(1);
    HW_ASSIGN_OR_RETURN(const auto optimizer,
                        Optimizer::Create(Config(HEAD), Pointers(mine), &ranks));
    // Ranks 1 and 3 hold the same half of w1; of wo, R on dp, one replica alone has it.
    const char* const bad = ranks.rank() % 2 == 1 ? "w1" : ranks.rank() == 2 ? "wo" : "";
    for (const auto& p : mine) {
      if (p->name == bad) p->gradient.data<float>()[0] = std::nanf("");
    }
    const StepReport report = optimizer->Step(0, kSteps, pool);
    HW_RETURN_IF_ERROR(report.status);
    if (!report.skipped || report.non_finite != "w1") differences.Add(report.non_finite);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(differences.text(), "");
}

TEST(OptimizerOnRanks, ReplicasThatHaveComeApartAreAnError) {
  const Mesh mesh = ParseMesh("dp=2,tp=2");
  const RankModel model({.mesh = mesh});
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
    const Parameters mine = model.Share(ranks.rank(), model.Whole());
    ThreadPool pool(1);
    HW_ASSIGN_OR_RETURN(const auto optimizer,
                        Optimizer::Create(Config(HEAD), Pointers(mine), &ranks));
    for (const auto& p : mine) {
      if (p->name == "norm" && ranks.rank() == 2) p->gradient.data<float>()[0] = 1;
    }
    return optimizer->Step(0, kSteps, pool).status;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 2 of 1")) << status;
}

// Blocks that are cut are stepped on the CPU.
TEST(OptimizerOnRanks, TensorCoresAreRefused) {
  const Mesh mesh = ParseMesh("tp=2");
  const RankModel model({.mesh = mesh});
  OptimizerConfig config = Config(HEAD);
  config.mutable_muon()->set_compute_mode(TENSOR_CORE);
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
    const Parameters mine = model.Share(ranks.rank(), model.Whole());
    OptimizerKernels kernels;
    kernels.tensor_core_muon_step = kernels.muon_step;
    return Optimizer::Create(config, Pointers(mine), &ranks, kernels).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(
      status.message(),
      "optimizer.muon.compute_mode must be CONTRACT_FP32 on several ranks, found TENSOR_CORE; try "
      "one rank (no --mesh) on a GPU or its emulation (--device cuda or cuda-emulated), or "
      "CONTRACT_FP32 (--set optimizer.muon.compute_mode=CONTRACT_FP32), with which a run's "
      "checkpoints go on"))
      << status;
}

// A rank's account of a step, and what its communicator has counted.
TEST(OptimizerOnRanks, SendsWhatTheAccountSays) {
  for (const Case& c : Cases()) {
    for (const MuonGranularity granularity : {HEAD, PROJECTION, WHOLE_MATRIX}) {
      const RankModel model(c.options);
      const OptimizerConfig config = Config(granularity);
      Differences differences;
      const absl::Status status = RunThreadRanks(
          static_cast<int>(c.options.mesh.size()), [&](Communicator& inner) -> absl::Status {
            std::int64_t sent = 0;
            CountingCommunicator world(inner, &sent);
            HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(c.options.mesh, world));
            const Parameters meta = model.Meta(ranks.rank());
            const std::vector<Parameter*> pointers = Pointers(meta);
            HW_ASSIGN_OR_RETURN(
                const OptimizerAccount account,
                AccountOptimizer(config,
                                 std::vector<const Parameter*>(pointers.begin(), pointers.end()),
                                 ranks.rank()));
            const Parameters mine = model.Share(ranks.rank(), model.Whole());
            ThreadPool pool(1);
            HW_ASSIGN_OR_RETURN(const auto optimizer,
                                Optimizer::Create(config, Pointers(mine), &ranks));
            if (sent != 0) differences.Add("Create sends");
            HW_RETURN_IF_ERROR(optimizer->Step(0, kSteps, pool).status);
            std::int64_t state_bytes = 0;
            for (const NamedTensor& s : optimizer->State()) state_bytes += s.tensor.bytes();
            if (sent != account.bytes_sent() || state_bytes != account.state_bytes) {
              differences.Add(absl::StrCat("rank ", ranks.rank(), " sent ", sent, ", keeps ",
                                           state_bytes, ": ", account.ToString()));
            }
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(differences.text(), "") << c.name << ", " << MuonGranularity_Name(granularity);
    }
  }
}

}  // namespace
}  // namespace headwise
