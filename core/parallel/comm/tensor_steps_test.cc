#include "core/parallel/comm/tensor_steps.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

// Two dimensions of two factors each, all of which 2 x 2 ranks can cut.
const std::vector<Dim> kShape = {{Factor::Batch("B", 2), {"L", 12}},
                                 {{"G", 4}, {"M", 2}, Factor::Whole("D", 3)}};
constexpr char kMesh[] = "dp=2,tp=2,ep=4";

Tensor Random(const Shape& shape, std::uint64_t seed) {
  Tensor tensor = Tensor::Zeros(shape, DType::kI32, Device::kCpu);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(NextSplitMix(seed) % 1000);
  }
  return tensor;
}

bool Equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

void AddTo(const Tensor& sum, const Tensor& x) {
  for (std::int64_t i = 0; i < sum.size(); ++i) {
    sum.data<std::int32_t>()[i] += x.data<std::int32_t>()[i];
  }
}

// A value of a type: what each rank holds, and the global tensor that this stands for. On P axes
// every rank's term is random.
struct Value {
  std::vector<Tensor> local;
  Tensor global;
};

Value Make(const LayoutType& type) {
  const Mesh& mesh = type.mesh();
  // The same without the P axes, of which every place has a term of its own.
  Value value = {.global = Tensor::Zeros(type.GlobalShape(), type.dtype(), Device::kCpu)};
  std::vector<int> partial;
  LayoutSpec spec = {.view = type.view()};
  for (int axis = 0; axis < static_cast<int>(type.axis_types().size()); ++axis) {
    if (type.axis_type(axis) == AxisType::kPartial) partial.push_back(axis);
  }
  for (int dim = 0; dim < type.rank(); ++dim) {
    for (const ShardedFactor& f : type.dims()[static_cast<std::size_t>(dim)]) {
      for (const int axis : f.axes) {
        spec.axes.push_back({.axis = mesh.Axes(type.view())[static_cast<std::size_t>(axis)].name,
                             .type = AxisType::kShard,
                             .dim = dim,
                             .sizes = f.sizes});
      }
    }
  }
  const LayoutType shares = *LayoutType::Declare(mesh, kShape, type.dtype(), spec);
  for (std::int64_t rank = 0; rank < mesh.size(); ++rank) {
    std::uint64_t term = 7;
    for (const int axis : partial) {
      term = 10 * term + static_cast<std::uint64_t>(mesh.Coordinate(type.view(), axis, rank));
    }
    value.local.push_back(LocalShare(shares, rank, Random(type.GlobalShape(), term)));
  }
  // One rank for each combination of places on the P axes.
  for (const std::int64_t rank : mesh.Group(type.view(), partial, 0)) {
    std::uint64_t term = 7;
    for (const int axis : partial) {
      term = 10 * term + static_cast<std::uint64_t>(mesh.Coordinate(type.view(), axis, rank));
    }
    AddTo(value.global, Random(type.GlobalShape(), term));
  }
  return value;
}

// The step keeps the value: what the ranks hold afterwards stands, by the type afterwards, for the
// same global tensor; and R, I and S hold exactly what LocalShare() says.
void CheckKeepsValue(const char* spec, const char* step_text) {
  const LayoutType type = Leaf(kMesh, kShape, spec, DType::kI32);
  const Step step = *Step::Parse(step_text);
  const LayoutType after = *Apply(step, type);
  const Value value = Make(type);
  std::atomic<int> wrong = 0;
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(type.mesh(), world));
    const Tensor& x = value.local[static_cast<std::size_t>(ranks.rank())];
    HW_ASSIGN_OR_RETURN(const Tensor y, RunStep(ranks, step, type, x));
    wrong += y.shape() != after.LocalShape(ranks.rank());
    bool whole = true;
    for (const AxisType axis : after.axis_types()) whole = whole && axis != AxisType::kPartial;
    wrong += whole && !Equal(y, LocalShare(after, ranks.rank(), value.global));
    HW_ASSIGN_OR_RETURN(const Tensor global, Assemble(ranks, after, y));
    wrong += !Equal(global, value.global);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << spec << ", " << step_text << ": " << status;
  EXPECT_EQ(wrong, 0) << spec << ", " << step_text;
}

TEST(TensorSteps, KeepTheValue) {
  const struct {
    const char *spec, *step;
  } kRows[] = {
      {"P@tp", "all_reduce@tp -> R"},
      {"P@tp", "all_reduce@tp -> I"},
      {"P@dp, P@tp", "all_reduce@dp -> R"},
      {"S(0)@dp, P@tp", "all_reduce@tp -> R"},
      {"S(0)@tp", "all_gather@tp -> R"},
      {"S(1)@tp", "all_gather@tp -> I"},
      {"S(0)@dp, S(0)@tp", "all_gather@tp -> R"},
      {"S(1)@dp, S(1)@tp", "all_gather@tp -> R"},
      {"S(1)@tp, S(1)@dp", "all_gather@dp -> R"},
      {"S(0: 0 2)@dp", "all_gather@dp -> R"},
      {"P@tp", "reduce_scatter@tp -> S(0)"},
      {"P@tp", "reduce_scatter@tp -> S(1)"},
      {"P@dp, S(1)@tp", "reduce_scatter@dp -> S(1)"},
      {"S(0)@dp, P@tp", "reduce_scatter@tp -> S(0)"},
      {"P@tp", "reduce_scatter@tp -> S(1: 3 1)"},
      {"S(0)@tp", "all_to_all@tp -> S(1)"},
      {"S(1)@tp", "all_to_all@tp -> S(0)"},
      {"S(0)@dp, S(0)@tp", "all_to_all@tp -> S(1)"},
      {"S(1)@dp, S(1)@tp", "all_to_all@tp -> S(0)"},
      {"S(1: 3 1)@tp", "all_to_all@tp -> S(0: 0 2)"},
      {"P@dp, S(1)@tp", "all_to_all@tp -> S(0)"},
      {"I@tp", "convert@tp -> R"},
      {"", "convert@tp -> S(1)"},
      {"I@tp", "convert@tp -> S(0)"},
      {"S(1)@dp", "convert@tp -> S(1)"},
      {"", "convert@tp -> S(1: 1 3)"},
      {"", "convert@tp -> P"},
      {"S(1)@tp", "convert@tp -> P"},
      {"S(0)@dp, S(0)@tp", "convert@tp -> P"},
      {"S(1)@dp, S(1)@tp", "reinterpret_mesh -> expert"},
      {"expert: S(1)@ep", "all_gather@ep -> R"},
      {"expert: P@ep", "reduce_scatter@ep -> S(1)"},
  };
  for (const auto& [spec, step] : kRows) CheckKeepsValue(spec, step);
}

// A type that is wrong gives data that are wrong: what WhyNot() says of a second all_reduce.
TEST(TensorSteps, ASecondSumMultiplies) {
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(*Mesh::Parse("tp=2"), world));
    const LayoutType p = Leaf("tp=2", {{{"N", 1}}}, "P@tp", DType::kI32);
    const Tensor one = Tensor::Zeros({1}, DType::kI32, Device::kCpu);
    one.data<std::int32_t>()[0] = 1;
    const Step sum = *Step::Parse("all_reduce@tp -> R");
    HW_ASSIGN_OR_RETURN(const Tensor once, RunStep(ranks, sum, p, one));
    HW_ASSIGN_OR_RETURN(const Tensor twice, RunStep(ranks, sum, p, once));
    EXPECT_EQ(once.data<std::int32_t>()[0], 2);
    EXPECT_EQ(twice.data<std::int32_t>()[0], 4);
    // The checked path refuses it.
    return RunStep(ranks, sum, *Apply(sum, p), once).status();
  });
  EXPECT_TRUE(absl::StrContains(status.message(), "multiplies it by the number of ranks"))
      << status;
}

TEST(TensorSteps, Refusals) {
  EXPECT_EQ(RunThreadRanks(2,
                           [](Communicator& world) {
                             return MeshRanks::Create(*Mesh::Parse("tp=4"), world).status();
                           })
                .message()
                .substr(8),
            "mesh tp=4 has 4 ranks, the run 2");
  const absl::Status ragged = RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(*Mesh::Parse("tp=2"), world));
    const LayoutType rows =
        Leaf("tp=2", {{{"E", 2}}, {Factor::Ragged("R", 5)}}, "S(1)@tp", DType::kI32);
    return RunStep(ranks, *Step::Parse("all_to_all@tp -> S(0)"), rows,
                   Tensor::Zeros({2, 3}, DType::kI32, Device::kCpu))
        .status();
  });
  EXPECT_TRUE(absl::StrContains(ragged.message(), "R=5 has no fixed share")) << ragged;
}

}  // namespace
}  // namespace headwise
