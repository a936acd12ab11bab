// Heads that are shared out over ranks keep their bits: prepare_qkv, its backward and attention's, and
// the norm of each head's output, on shares of kv groups.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/rules/attention_rules.h"
#include "core/parallel/tensor_layout.h"
#include "core/rope/rotary_table.h"
#include "gtest/gtest.h"
#include "model/ops.h"
#include "model/random.h"
#include "model/sharding.h"

namespace headwise {
namespace {

constexpr std::int64_t kTokens = 37, kGroups = 12, kQueries = 3, kHeadDim = 10;

Tensor Random(Shape shape, DType dtype, std::uint64_t seed) {
  Tensor x = Tensor::Empty(std::move(shape), dtype, Device::kCpu);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(Normal(seed, i));
    if (dtype == DType::kBF16) {
      x.data<BFloat16>()[i] = BFloat16(value);
    } else {
      x.data<float>()[i] = value;
    }
  }
  return x;
}

std::string Bytes(const Tensor& x) {
  return {static_cast<const char*>(x.raw_data()), static_cast<std::size_t>(x.bytes())};
}

// Every result of the head-wise part of a layer.
struct Results {
  std::vector<Tensor> tensors;
};

struct Inputs {
  Tensor packed, d_o, q_weight, k_weight, sinks;
};

Inputs MakeInputs(DType dtype) {
  const std::int64_t heads = kGroups * kQueries;
  return {.packed = Random({kTokens, (heads + 2 * kGroups) * kHeadDim}, dtype, 1),
          .d_o = Random({kTokens, heads * kHeadDim}, dtype, 2),
          .q_weight = Random({kHeadDim}, DType::kF32, 3),
          .k_weight = Random({kHeadDim}, DType::kF32, 4),
          .sinks = Random({heads}, DType::kF32, 5)};
}

Results HeadWise(const OpContext& ctx, std::int64_t groups, const Inputs& in,
                 const LayoutType& positions_layout) {
  const RotaryTable table =
      *RotaryTable::Create({.length = kTokens, .rotary_dim = kHeadDim, .theta = 1e4});
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < kTokens; ++t) positions.push_back(t % 20);
  const ops::QkvArguments arguments = {
      .op = {.layout = *PackedQkv::Interleaved({groups * kQueries, groups, kHeadDim}),
             .norm = HeadNorm::kWeighted,
             .query_scale = 1.5F,
             .rotary = &table},
      .q_weight = in.q_weight,
      .k_weight = in.k_weight,
      .positions = {.values = positions, .layout = positions_layout}};
  const std::vector<AttentionSegment> segments = {
      {.num_queries = 20, .num_keys = 20},
      {.query_begin = 20, .num_queries = 17, .key_begin = 20, .num_keys = 17}};
  const Attention attention = {.query_heads = groups * kQueries,
                               .kv_heads = groups,
                               .head_dim = kHeadDim,
                               .scale = 0.3,
                               .window = 7};
  const RmsNorm norm = {.style = RmsNormStyle::kScaleless, .epsilon = 1e-5F};
  const ops::Qkv qkv = ops::PrepareQkv(ctx, arguments, in.packed);
  const ops::AttentionOutput out =
      ops::Attention(ctx, attention, segments, qkv, in.sinks, /*keep_statistics=*/true);
  const Tensor normed = ops::HeadRmsNorm(ctx, norm, kHeadDim, out.o);
  const Tensor d_o = ops::HeadRmsNormBackward(ctx, norm, kHeadDim, out.o, in.d_o);
  Tensor dsinks = ctx.Empty({groups * kQueries}, DType::kF32);
  Tensor dq_weight = ctx.Empty({groups, kHeadDim}, DType::kF32);
  Tensor dk_weight = ctx.Empty({groups, kHeadDim}, DType::kF32);
  const ops::Qkv d =
      ops::AttentionBackward(ctx, attention, segments, qkv, in.sinks, out, d_o, &dsinks);
  const Tensor dpacked =
      ops::PrepareQkvBackward(ctx, arguments, in.packed, d, &dq_weight, &dk_weight);
  return {{qkv.q, qkv.k, qkv.v, out.o, out.log_sum_exp, normed, d.q, d.k, d.v, dsinks, dq_weight,
           dk_weight, dpacked}};
}

// The whole tensors that the ranks' shares make, as bytes.
std::vector<std::string> OnRanks(const char* mesh_text, DType dtype) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  LayoutPlan plan;
  plan.SetLeaf("packed", "S(1)@tp");
  plan.SetLeaf("d_o", "S(1)@tp");
  plan.SetLeaf("sinks", "S(0)@tp");
  std::vector<std::string> whole;
  const absl::Status status =
      RunThreadRanks(static_cast<int>(mesh.size()), [&](Communicator& comm) -> absl::Status {
        HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(mesh, comm));
        LayoutChecker checker(mesh, plan);
        Sharding sharding(checker, ranks);
        ThreadPool pool(1);
        const OpContext ctx = {.compute = dtype, .pool = &pool, .sharding = &sharding};
        const Dim tokens = {{"L", kTokens}};
        const auto queries = rules::QueryHeads(kGroups, kQueries, kHeadDim);
        const Inputs all = MakeInputs(dtype);
        const auto share = [&](const char* name, const std::vector<Dim>& dims,
                               const Tensor& tensor) {
          const LayoutType type = checker.Input(name, dims, tensor.dtype());
          return TensorLayout::Attach(LocalShare(type, comm.rank(), tensor), type);
        };
        const Dim d = {Factor::Whole("D", kHeadDim)};
        const Inputs in = {
            .packed = share("packed", {tokens, rules::InterleavedQkv(kGroups, kQueries, kHeadDim)},
                            all.packed),
            .d_o = share("d_o", {tokens, queries}, all.d_o),
            .q_weight = share("q_weight", {d}, all.q_weight),
            .k_weight = share("k_weight", {d}, all.k_weight),
            .sinks = share("sinks", {{queries[0], queries[1]}}, all.sinks)};
        const Results results = HeadWise(ctx, kGroups / mesh.size(), in,
                                         checker.Input("positions", {tokens}, DType::kI64));
        HW_RETURN_IF_ERROR(checker.status());
        for (const Tensor& tensor : results.tensors) {
          HW_ASSIGN_OR_RETURN(const Tensor assembled, Assemble(ranks, LayoutOf(tensor), tensor));
          if (comm.rank() == 0) whole.push_back(Bytes(assembled));
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return whole;
}

TEST(HeadShards, HaveTheBitsOfTheWhole) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ThreadPool pool(1);
    const OpContext ctx = {.compute = dtype, .pool = &pool};
    std::vector<std::string> expected;
    for (const Tensor& tensor : HeadWise(ctx, kGroups, MakeInputs(dtype), {}).tensors) {
      expected.push_back(Bytes(tensor));
    }
    for (const char* mesh : {"tp=2", "tp=3", "tp=4", "tp=12"}) {
      const std::vector<std::string> actual = OnRanks(mesh, dtype);
      ASSERT_EQ(actual.size(), expected.size()) << mesh;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(actual[i] == expected[i])
            << "result " << i << " on " << mesh << " in " << Name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace headwise
