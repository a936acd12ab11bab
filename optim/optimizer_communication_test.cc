// Accounts of the optimizer on types alone, and what it refuses on ranks.
// optimizer_on_ranks_test.cc compares accounts with what is sent.
#include "optim/optimizer_communication.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/tensor_layout.h"
#include "gtest/gtest.h"
#include "optim/defaults.h"
#include "optim/optimizer.h"
#include "optim/testing/rank_model.h"

namespace headwise {
namespace {

OptimizerConfig Config(MuonGranularity granularity) {
  OptimizerConfig config = DefaultOptimizerConfig();
  config.mutable_muon()->set_granularity(granularity);
  return config;
}

OptimizerAccount Account(const RankModel& model, const OptimizerConfig& config,
                         std::int64_t rank = 0) {
  const Parameters meta = model.Meta(rank);
  const std::vector<Parameter*> pointers = Pointers(meta);
  const auto account = AccountOptimizer(
      config, std::vector<const Parameter*>(pointers.begin(), pointers.end()), rank);
  EXPECT_TRUE(account.ok()) << account.status();
  return *account;
}

// Bytes by parameter, apart from the norm.
std::map<std::string, std::int64_t> Gathered(const OptimizerAccount& account) {
  std::map<std::string, std::int64_t> bytes;
  for (const OptimizerMessage& m : account.messages) {
    if (m.what != "gradient norm") bytes[m.parameter] += m.bytes_sent;
  }
  return bytes;
}

TEST(OptimizerCommunication, PerHeadSendsNothingOfHeads) {
  const RankModel model({.mesh = *Mesh::Parse("dp=2,tp=4,ep=4"),
                         .experts_in = "expert: S(0)@ep",
                         .experts_out = "expert: S(0)@ep"});
  const auto bytes = Gathered(Account(model, Config(HEAD)));
  for (const char* name : {"wqkv", "gate", "experts_in", "experts_out", "embedding", "norm"}) {
    EXPECT_FALSE(bytes.contains(name)) << name;
  }
  EXPECT_TRUE(bytes.contains("wo"));
  EXPECT_TRUE(Gathered(Account(model, Config(PROJECTION))).contains("wqkv"));
}

// Over the ranks of a group each element of a matrix moves once to its owner, unless it is there,
// and once back.
TEST(OptimizerCommunication, EveryElementMovesOnceEachWay) {
  const RankModel model({.mesh = *Mesh::Parse("tp=4")});
  std::map<std::string, std::int64_t> there, back;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    for (const OptimizerMessage& m : Account(model, Config(WHOLE_MATRIX), rank).messages) {
      if (m.what == "gather for Newton-Schulz") there[m.parameter] += m.bytes_sent;
      if (m.what == "return the update") back[m.parameter] += m.bytes_sent;
      EXPECT_EQ(m.axis, m.parameter.empty() ? "all ranks" : "tp");
    }
  }
  EXPECT_EQ(there["wqkv"], 4 * 96 * 20 * 3 / 4);
  EXPECT_EQ(there["w2"], 4 * 20 * 12 * 3 / 4);
  EXPECT_EQ(there["experts_in"], 4 * 4 * 8 * 20 * 3 / 4);
  EXPECT_EQ(there, back);
}

TEST(OptimizerCommunication, TheNormCostsEightBytesARow) {
  const RankModel model({.mesh = *Mesh::Parse("dp=2,tp=4")});
  std::map<std::string, std::int64_t> first, last;
  for (const auto& [rank, bytes] : {std::pair(0, &first), std::pair(3, &last)}) {
    for (const OptimizerMessage& m : Account(model, Config(HEAD), rank).messages) {
      if (m.what == "gradient norm") (*bytes)[m.parameter] += m.bytes_sent;
    }
  }
  EXPECT_EQ(first["wqkv"], 8 * 3 * 24);  // its rows, to three others
  EXPECT_EQ(first["wo"], 8 * 20);        // to the next rank
  EXPECT_EQ(last["wo"], 8 * 3 * 20);     // the last one has the sums
  EXPECT_FALSE(first.contains("norm"));  // I on tp, R on dp
  EXPECT_EQ(first[""], 2 * 8 * 7);
}

TEST(OptimizerCommunication, OneRankSendsNothing) {
  const OptimizerAccount account = Account(RankModel({.mesh = Mesh()}), Config(WHOLE_MATRIX));
  EXPECT_TRUE(account.messages.empty());
  const std::int64_t muon = 96 * 20 + 48 * 20 * 2 + 12 * 20 * 2 + 4 * 8 * 20 * 2;
  const std::int64_t adamw = 24 * 20 + 20 + 96 + 4 * 20;
  EXPECT_EQ(account.state_bytes, 4 * muon + 8 * adamw + 8);
  EXPECT_TRUE(absl::StrContains(account.ToString(), "0 bytes; optimizer state"))
      << account.ToString();
}

// --- What Create() refuses ---

absl::Status CreateOnRanks(const RankModel& model, const Mesh& mesh) {
  return RunThreadRanks(static_cast<int>(mesh.size()), [&](Communicator& world) -> absl::Status {
    const auto ranks = MeshRanks::Create(mesh, world);
    if (!ranks.ok()) return ranks.status();
    const Parameters mine = model.Share(ranks->rank(), model.Whole());
    return Optimizer::Create(Config(HEAD), Pointers(mine), &*ranks).status();
  });
}

TEST(OptimizerOnRanksErrors, SharesNeedTheirRanks) {
  const RankModel model({.mesh = *Mesh::Parse("tp=2")});
  const Parameters mine = model.Share(0, model.Whole());
  const absl::Status status = Optimizer::Create(Config(HEAD), Pointers(mine)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "needs its ranks")) << status;
}

TEST(OptimizerOnRanksErrors, LayoutsAndRanksAreOfOneMesh) {
  const RankModel model({.mesh = *Mesh::Parse("tp=2")});
  const absl::Status status = CreateOnRanks(model, *Mesh::Parse("dp=2"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "the mesh tp=2, the ranks on dp=2")) << status;
}

TEST(OptimizerOnRanksErrors, ABalancingBiasIsNotCut) {
  const LayoutType type = *LayoutType::Declare(*Mesh::Parse("tp=2"), {{{"E", 4}}}, DType::kF32,
                                               *LayoutSpec::Parse("S(0)@tp"));
  const Parameter bias = {
      .name = "router.balancing_bias",
      .role = ParameterRole::kBalancingBias,
      .value = TensorLayout::Attach(Tensor::Empty({2}, DType::kF32, Device::kMeta), type)};
  const absl::Status status =
      AccountOptimizer(Config(WHOLE_MATRIX), std::vector<const Parameter*>{&bias}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "router.balancing_bias")) << status;
}

}  // namespace
}  // namespace headwise
