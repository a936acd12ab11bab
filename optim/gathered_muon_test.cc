// Blocks that move in several rounds, and column blocks, get the update of one rank.
#include "optim/gathered_muon.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/tensor_layout.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"
#include "optim/muon.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

constexpr char kMesh[] = "dp=2,tp=2";

struct Matrix {
  std::string name;
  LayoutType type;
  HeadBlocks blocks;
};

HeadBlocks ColumnHeads(std::int64_t heads, std::int64_t size) {
  std::vector<HeadBlock> blocks;
  for (std::int64_t h = 0; h < heads; ++h) {
    blocks.push_back({.ranges = {{h * size, size}}, .role = HeadRole::kQuery, .head = h});
  }
  return *HeadBlocks::Create(heads * size, std::move(blocks), BlockAxis::kColumns);
}

std::vector<Matrix> Matrices() {
  const Dim rows = {{"N", 12}}, columns = {{"K", 16}};
  return {{"a", Leaf(kMesh, {rows, columns}, "S(0)@tp"), HeadBlocks::Whole(12)},
          {"b", Leaf(kMesh, {rows, columns}, "S(1)@tp"), HeadBlocks::Whole(12)},
          {"c", Leaf(kMesh, {rows, columns}, "S(1)@tp, S(1)@dp"), HeadBlocks::Whole(12)},
          {"d", Leaf(kMesh, {rows, columns}, "S(0)@tp, S(1)@dp"), HeadBlocks::Whole(12)},
          {"e", Leaf(kMesh, {rows, columns}, "S(0)@tp"), ColumnHeads(4, 4)},
          {"f", Leaf(kMesh, {columns, rows}, "S(0)@dp"), HeadBlocks::Whole(16)}};
}

Tensor Random(const LayoutType& type, std::uint64_t seed) {
  const std::vector<float> values = RandomValues(12 * 16, seed);
  Tensor tensor = Tensor::Zeros(type.GlobalShape(), DType::kF32, Device::kCpu);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

TEST(GatheredMuon, RoundsDoNotShowInABit) {
  const std::vector<Matrix> matrices = Matrices();
  const MuonHyperparameters hyper = {.weight_decay = 0.1, .scale = UpdateScale::kMatchRmsAdamW};
  std::vector<Tensor> values, gradients;
  std::vector<MuonParameter> whole;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    values.push_back(Random(matrices[i].type, i));
    gradients.push_back(Random(matrices[i].type, 100 + i));
  }
  std::vector<Tensor> updated;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    updated.push_back(values[i].Clone());
    whole.push_back({.name = matrices[i].name,
                     .value = updated[i].Rows<float>(),
                     .gradient = gradients[i].Rows<const float>(),
                     .blocks = matrices[i].blocks});
  }
  ThreadPool one(1);
  Muon single = *Muon::Create(hyper, whole);
  for (int step = 0; step < 2; ++step) single.StepUnguarded(one, 0.5, 0.25);

  for (const std::int64_t round_elements : {1, 200, 100000}) {
    std::atomic<int> wrong = 0;
    std::atomic<std::int64_t> rounds = 0;  // of the ranks, those of tp's group
    const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
      HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(*Mesh::Parse(kMesh), world));
      AxisGroups axes(ranks);
      std::vector<Tensor> mine, my_gradients;
      std::vector<ParameterShare> shares;
      std::vector<GatheredParameter> parameters;
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const LayoutType& type = matrices[i].type;
        mine.push_back(LocalShare(type, ranks.rank(), values[i]));
        my_gradients.push_back(LocalShare(type, ranks.rank(), gradients[i]));
        const Parameter p = {.name = matrices[i].name,
                             .value = TensorLayout::Attach(mine.back(), type)};
        HW_ASSIGN_OR_RETURN(ParameterShare share, ParameterShare::Create(p, ranks.rank()));
        shares.push_back(std::move(share));
        parameters.push_back({p.name, mine[i].Rows<float>(), my_gradients[i].Rows<const float>()});
      }
      std::vector<BlockedParameter> blocked;
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        blocked.push_back({matrices[i].name, &shares[i], &matrices[i].blocks});
      }
      CutPlan plan = PlanCutBlocks(blocked, ranks.rank(), round_elements);
      for (const CutGroup& group : plan.groups) {
        if (group.axes == std::vector<int>{1}) rounds += group.rounds;
      }
      HW_ASSIGN_OR_RETURN(GatheredMuon muon,
                          GatheredMuon::Create(hyper, parameters, std::move(plan.groups), axes));
      ThreadPool pool(2);
      for (int step = 0; step < 2; ++step) HW_RETURN_IF_ERROR(muon.Step(pool, 0.5, 0.25));
      const std::vector<NamedTensor> state = muon.State(), expected = single.State();
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const LayoutType& type = matrices[i].type;
        wrong += !SameBits(mine[i], LocalShare(type, ranks.rank(), updated[i]));
        wrong += !SameBits(state.at(i).tensor, LocalShare(type, ranks.rank(), expected[i].tensor));
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(wrong, 0) << round_elements;
    // tp's groups share two matrices and four column blocks, three of them each rank's.
    EXPECT_EQ(rounds, 4 * (round_elements == 1 ? 3 : round_elements == 200 ? 2 : 1));
  }
}

}  // namespace
}  // namespace headwise
