// The norm of gradients that ranks share has the bits of one rank's, under layouts that no decoder
// has too: columns in the order of other axes, rows and columns cut at once, vectors, experts.
#include "optim/shard_norm.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/tensor_layout.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

struct Gradient {
  std::string name;
  LayoutType type;
  Tensor whole;
};

std::vector<Gradient> Gradients(const char* mesh, std::uint64_t seed) {
  const Dim rows = {{"A", 24}}, columns = {{"B", 8}, {"C", 7}}, even = {{"F", 20}};
  const std::pair<std::vector<Dim>, const char*> kinds[] = {
      {{rows, columns}, "S(0)@tp"},
      {{rows, columns}, "S(1)@tp"},
      {{rows, columns}, "S(1)@dp, S(1)@tp"},
      {{rows, columns}, "S(1)@tp, S(1)@dp"},
      {{rows, columns}, "S(0)@dp, S(1)@tp"},
      {{rows, columns}, "S(0)@tp, S(0)@dp"},
      {{rows, columns}, "S(1)@dp, I@tp"},
      {{columns}, "S(0)@tp"},
      {{columns}, "S(0)@tp, S(0)@dp"},
      {{columns}, "I@tp"},
      {{{{"E", 4}}, even, columns}, "expert: S(0)@ep"},
      {{{{"E", 4}}, even, columns}, "S(1)@tp"},
      {{{{"E", 4}}, columns, even}, "S(0)@dp, S(2)@tp"}};
  std::vector<Gradient> gradients;
  for (const auto& [shape, spec] : kinds) {
    Gradient& g = gradients.emplace_back();
    // Not in name order.
    g.name = std::string(1, static_cast<char>('z' - gradients.size()));
    g.type = Leaf(mesh, shape, spec);
    g.whole = Tensor::Zeros(g.type.GlobalShape(), DType::kF32, Device::kCpu);
    const std::vector<float> values = RandomValues(g.whole.size(), 100 * seed + gradients.size());
    std::copy(values.begin(), values.end(), g.whole.data<float>());
  }
  return gradients;
}

// Norms of these gradients that differ from one rank's, on all ranks.
int Wrong(const char* mesh_text, const std::vector<Gradient>& gradients) {
  std::vector<NamedGradient> wholes;
  for (const Gradient& g : gradients) wholes.push_back({g.name, g.whole.Rows<const float>()});
  ThreadPool one(1);
  const GradientSummary expected = SummarizeGradients(wholes, one);
  std::atomic<int> wrong = 0;
  const Mesh mesh = *Mesh::Parse(mesh_text);
  const absl::Status status =
      RunThreadRanks(static_cast<int>(mesh.size()), [&](Communicator& world) -> absl::Status {
        HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
        AxisGroups axes(ranks);
        std::vector<Parameter> parameters;
        std::vector<NamedGradient> mine;
        std::vector<ParameterShare> shares;
        for (const Gradient& g : gradients) {
          Parameter& p = parameters.emplace_back();
          p.name = g.name;
          p.value = TensorLayout::Attach(LocalShare(g.type, ranks.rank(), g.whole), g.type);
          mine.push_back({g.name, p.value.Rows<const float>()});
          HW_ASSIGN_OR_RETURN(ParameterShare share, ParameterShare::Create(p, ranks.rank()));
          shares.push_back(std::move(share));
        }
        HW_ASSIGN_OR_RETURN(ShardNorm norm,
                            ShardNorm::Create(std::move(mine), std::move(shares), axes));
        ThreadPool pool(2);
        for (int repeat = 0; repeat < 2; ++repeat) {
          HW_ASSIGN_OR_RETURN(const GradientSummary summary, norm.Summarize(pool));
          wrong += summary.norm != expected.norm || !summary.non_finite.empty();
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << mesh_text << ": " << status;
  return wrong;
}

TEST(ShardNorm, HasTheBitsOfOneRankWhateverTheLayouts) {
  for (const char* mesh : {"dp=2,tp=2,ep=4", "dp=1,tp=4,ep=2", "dp=4,tp=2,ep=2"}) {
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const std::vector<Gradient> gradients = Gradients(mesh, seed);
      EXPECT_EQ(Wrong(mesh, gradients), 0) << mesh;
      // Alone too: the sum of many hides the last bits of one.
      for (const Gradient& g : gradients) {
        EXPECT_EQ(Wrong(mesh, {g}), 0) << g.type.ToString() << " on " << mesh;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
