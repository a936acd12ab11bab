// A feed-forward layer on ranks in threads, forward and backward: under accepted layouts every rank
// ends with the single rank's result and gradients, exactly; and each mistake that the checker
// refuses, forced upon the data, gives wrong ones. Numbers are small integers in double, so that
// the order of additions does not show.
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

const Dim kT = {Factor::Batch("B", 2), {"L", 4}};
const Dim kN = {{"N", 6}};
const Dim kF = {{"F", 4}};

// A type and the data of one rank.
struct Typed {
  LayoutType type;
  Tensor data;
};

Tensor Zeros(std::int64_t rows, std::int64_t columns) {
  return Tensor::Zeros({rows, columns}, DType::kF64, Device::kCpu);
}

Tensor Random(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Tensor x = Zeros(rows, columns);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x.data<double>()[i] = static_cast<double>(NextSplitMix(seed) % 7) - 3;
  }
  return x;
}

// sum over k of a(i, k) b(k, j), either transposed.
Tensor Product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const auto at = [](const Tensor& x, bool transpose, std::int64_t i, std::int64_t j) {
    return x.data<double>()[transpose ? j * x.dim(1) + i : i * x.dim(1) + j];
  };
  const std::int64_t inner = a.dim(transpose_a ? 0 : 1);
  Tensor c = Zeros(a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1));
  for (std::int64_t i = 0; i < c.dim(0); ++i) {
    for (std::int64_t j = 0; j < c.dim(1); ++j) {
      for (std::int64_t k = 0; k < inner; ++k) {
        c.data<double>()[i * c.dim(1) + j] += at(a, transpose_a, i, k) * at(b, transpose_b, k, j);
      }
    }
  }
  return c;
}

Tensor Map(const Tensor& a, const Tensor& b, const std::function<double(double, double)>& f) {
  Tensor c = Zeros(a.dim(0), a.dim(1));
  for (std::int64_t i = 0; i < c.size(); ++i) {
    c.data<double>()[i] = f(a.data<double>()[i], b.data<double>()[i]);
  }
  return c;
}

double Sum(double a, double b) { return a + b; }
double Times(double a, double b) { return a * b; }

// y = x + (x W1^T)^2 W2^T, and the gradients for a given dy.
struct Result {
  Tensor y, dx, dw1, dw2;
};

struct Inputs {
  Tensor x = Random(8, 6, 1), dy = Random(8, 6, 2), w1 = Random(4, 6, 3), w2 = Random(6, 4, 4);
};

Result OnOneRank(const Inputs& in) {
  const Tensor h = Product(in.x, false, in.w1, true), g = Map(h, h, Times);
  const Tensor dg = Product(in.dy, false, in.w2, false);
  const Tensor dh = Map(h, dg, [](double a, double b) { return 2 * a * b; });
  return {.y = Map(in.x, Product(g, false, in.w2, true), Sum),
          .dx = Map(in.dy, Product(dh, false, in.w1, false), Sum),
          .dw1 = Product(dh, true, in.x, false),
          .dw2 = Product(in.dy, true, g, false)};
}

enum class Force { kNothing, kNoSum, kSumTwice, kNoBackwardSum, kNoReduction, kReduceShards };

struct Plan {
  const char *stream, *in, *out;
};
constexpr Plan kSequenceParallel = {"S(0)@dp, S(0)@tp", "all_gather@tp -> R",
                                    "reduce_scatter@tp -> S(0)"};
constexpr Plan kInvariant = {"S(0)@dp, I@tp", "convert@tp -> R", "all_reduce@tp -> I"};

// The layer as one rank runs it. Types are derived at every line, and say what a step does.
class RankLayer {
 public:
  RankLayer(const MeshRanks& ranks, const Plan& plan, Force force)
      : ranks_(ranks), plan_(plan), force_(force) {}

  absl::StatusOr<Result> Run(const Inputs& in) {
    const Typed x = Share({kT, kN}, plan_.stream, in.x), dy = Share({kT, kN}, plan_.stream, in.dy);
    const Typed w1 = Share({kF, kN}, "S(0)@tp", in.w1), w2 = Share({kN, kF}, "S(1)@tp", in.w2);

    const Step into = *Step::Parse(plan_.in), out = *Step::Parse(plan_.out);
    HW_ASSIGN_OR_RETURN(const Typed r, Take(into, x));
    HW_ASSIGN_OR_RETURN(const LayoutType h_type, rules::Linear(r.type, w1.type, nullptr));
    const Typed h = {h_type, Product(r.data, false, w1.data, true)};
    const Typed g = {*rules::Gate(h.type, h.type), Map(h.data, h.data, Times)};
    HW_ASSIGN_OR_RETURN(const LayoutType sum_type, rules::Linear(g.type, w2.type, nullptr));
    const Typed sum = {sum_type, Product(g.data, false, w2.data, true)};
    HW_ASSIGN_OR_RETURN(Typed branch, Take(out, sum));
    if (force_ == Force::kNoSum) branch.data = sum.data;
    if (force_ == Force::kSumTwice) {
      HW_ASSIGN_OR_RETURN(branch.data, RunStep(ranks_, out, sum.type, branch.data));
    }
    const Typed y = {*rules::Add(x.type, branch.type), Map(x.data, branch.data, Sum)};

    HW_ASSIGN_OR_RETURN(const Typed dsum, Take(BackwardOf(out, sum.type), dy));
    const Typed dw2 = {*rules::LinearBackwardWeight(dsum.type, g.type, DType::kF64),
                       Product(dsum.data, true, g.data, false)};
    const Typed dg = {*rules::LinearBackwardInput(dsum.type, w2.type),
                      Product(dsum.data, false, w2.data, false)};
    const Typed dh = {*rules::Gate(dg.type, h.type),
                      Map(h.data, dg.data, [](double a, double b) { return 2 * a * b; })};
    const Typed dw1 = {*rules::LinearBackwardWeight(dh.type, r.type, DType::kF64),
                       Product(dh.data, true, r.data, false)};
    const Typed dr = {*rules::LinearBackwardInput(dh.type, w1.type),
                      Product(dh.data, false, w1.data, false)};
    HW_ASSIGN_OR_RETURN(Typed dx, Take(BackwardOf(into, x.type), dr));
    if (force_ == Force::kNoBackwardSum) dx.data = dr.data;
    dx = {*rules::Add(dx.type, dy.type), Map(dx.data, dy.data, Sum)};
    HW_RETURN_IF_ERROR(CheckDual(dx.type, x.type));

    Result result;
    HW_ASSIGN_OR_RETURN(result.y, Assemble(ranks_, y.type, y.data));
    HW_ASSIGN_OR_RETURN(result.dx, Assemble(ranks_, dx.type, dx.data));
    HW_ASSIGN_OR_RETURN(result.dw1, Reduced(dw1, w1.type));
    HW_ASSIGN_OR_RETURN(result.dw2, Reduced(dw2, w2.type));
    return result;
  }

 private:
  Typed Share(const std::vector<Dim>& shape, const char* spec, const Tensor& global) const {
    const LayoutType type = Leaf(ranks_.mesh(), shape, spec, DType::kF64);
    return {type, LocalShare(type, ranks_.rank(), global)};
  }

  absl::StatusOr<Typed> Take(const Step& step, const Typed& x) const {
    HW_ASSIGN_OR_RETURN(const LayoutType type, Apply(step, x.type));
    HW_ASSIGN_OR_RETURN(const Tensor data, RunStep(ranks_, step, x.type, x.data));
    return Typed{type, data};
  }

  // The gradient through its plan, then the whole of it.
  absl::StatusOr<Tensor> Reduced(const Typed& gradient, const LayoutType& parameter) const {
    HW_RETURN_IF_ERROR(CheckDual(gradient.type, parameter));
    HW_ASSIGN_OR_RETURN(const std::vector<Step> steps, DeriveReduction(gradient.type));
    Typed reduced = gradient;
    for (const Step& step : steps) {
      HW_ASSIGN_OR_RETURN(Typed next, Take(step, reduced));
      if (force_ == Force::kNoReduction) next.data = reduced.data;
      reduced = next;
    }
    if (force_ == Force::kReduceShards) {
      const Tensor sum = reduced.data.Clone();
      HW_RETURN_IF_ERROR(
          ranks_.world().AllReduce(ConstElements(sum.raw_data(), sum.size(), sum.dtype()),
                                   Elements(reduced.data.raw_data(), sum.size(), sum.dtype())));
    }
    return Assemble(ranks_, reduced.type, reduced.data);
  }

  const MeshRanks& ranks_;
  const Plan& plan_;
  Force force_;
};

bool Equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

// What differs from the single rank's on any rank: "", or some of "y dx dw1 dw2".
std::string Wrong(const char* mesh_text, const Plan& plan, Force force) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  const Inputs in;
  const Result expected = OnOneRank(in);
  std::atomic<bool> y = false, dx = false, dw1 = false, dw2 = false;
  const absl::Status status =
      RunThreadRanks(static_cast<int>(mesh.size()), [&](Communicator& world) -> absl::Status {
        HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, world));
        HW_ASSIGN_OR_RETURN(const Result found, RankLayer(ranks, plan, force).Run(in));
        if (!Equal(found.y, expected.y)) y = true;
        if (!Equal(found.dx, expected.dx)) dx = true;
        if (!Equal(found.dw1, expected.dw1)) dw1 = true;
        if (!Equal(found.dw2, expected.dw2)) dw2 = true;
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << mesh_text << ": " << status;
  return std::string(y ? "y " : "") + (dx ? "dx " : "") + (dw1 ? "dw1 " : "") + (dw2 ? "dw2" : "");
}

TEST(LayerOnRanks, AcceptedLayoutsGiveTheSingleRanksNumbers) {
  for (const char* mesh : {"", "dp=2", "tp=2", "dp=2,tp=2"}) {
    EXPECT_EQ(Wrong(mesh, kSequenceParallel, Force::kNothing), "") << mesh;
    EXPECT_EQ(Wrong(mesh, kInvariant, Force::kNothing), "") << mesh;
  }
}

TEST(LayerOnRanks, RefusedLayoutsGiveWrongNumbers) {
  EXPECT_EQ(Wrong("tp=2", kInvariant, Force::kNoSum), "y ");
  EXPECT_EQ(Wrong("tp=2", kInvariant, Force::kSumTwice), "y ");
  EXPECT_EQ(Wrong("tp=2", kInvariant, Force::kNoBackwardSum), "dx ");
  EXPECT_EQ(Wrong("dp=2", kInvariant, Force::kNoReduction), "dw1 dw2");
  EXPECT_EQ(Wrong("tp=2", kInvariant, Force::kReduceShards), "dw1 dw2");
}

}  // namespace
}  // namespace headwise
