// Links the CUDA kernels of prepare_qkv, as compiled by nvcc and as emulated, from outside. No GPU
// is needed: the emulation runs, and the GPU's launchers are asked for what needs no launch.
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/rope/rotary_table.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/reference.h"

namespace {

using headwise::QkvInputs;
using headwise::QkvLaunch;
using headwise::QkvOutputs;
using headwise::QkvPreparation;
using headwise::RowSpan;

constexpr std::int64_t kTokens = 5, kQueries = 4, kGroups = 2, kDim = 64;

// A layer of this program's own.
struct Layer {
  headwise::RotaryTable table =
      *headwise::RotaryTable::Create({.length = kTokens, .rotary_dim = kDim});
  QkvPreparation op = {.layout = *headwise::PackedQkv::Interleaved(
                           {.query_heads = kQueries, .kv_heads = kGroups, .head_dim = kDim}),
                       .norm = headwise::HeadNorm::kScaleless,
                       .rotary = &table};
  std::vector<float> packed = std::vector<float>(kTokens * op.layout.row_width());
  std::vector<std::int64_t> positions = std::vector<std::int64_t>(kTokens);

  Layer() {
    std::iota(packed.begin(), packed.end(), -1000.0f);
    std::iota(positions.begin(), positions.end(), 0);
  }
  QkvInputs<float> in() const {
    return {.packed = {packed.data(), kTokens, op.layout.row_width()}, .positions = positions};
  }
};

struct Outputs {
  std::vector<float> q = std::vector<float>(kTokens * kQueries * kDim);
  std::vector<float> k = std::vector<float>(kTokens * kGroups * kDim);
  std::vector<float> v = std::vector<float>(kTokens * kGroups * kDim);

  QkvOutputs<float> out() {
    return {{q.data(), kTokens, kQueries * kDim},
            {k.data(), kTokens, kGroups * kDim},
            {v.data(), kTokens, kGroups * kDim}};
  }
};

TEST(CudaLayer, TheEmulatedKernelReturnsTheReferencesBits) {
  const Layer layer;
  Outputs expected, actual;
  ASSERT_TRUE(headwise::PrepareQkvReference<float>(layer.op, layer.in(), expected.out()).ok());
  std::vector<std::int64_t> positions(kTokens);
  const QkvLaunch launch = {
      .cos = layer.table.Cos(0), .sin = layer.table.Sin(0), .positions = positions.data()};
  const headwise::emulation::Session session;
  const absl::Status status =
      headwise::cuda_emulated::PrepareQkv<float>(layer.op, layer.in(), actual.out(), launch);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(session.launches().size(), 1);
  EXPECT_EQ(actual.q, expected.q);
  EXPECT_EQ(actual.k, expected.k);
  EXPECT_EQ(actual.v, expected.v);
}

#if HEADWISE_EXAMPLE_WITH_CUDA
TEST(CudaLayer, TheGpusLauncherLinksAndChecks) {
  Layer layer;
  Outputs outputs;
  const absl::Status missing =
      headwise::cuda::PrepareQkv<float>(layer.op, layer.in(), outputs.out(), QkvLaunch{});
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument) << missing;

  QkvInputs<float> none = layer.in();
  none.packed.rows = 0;
  none.positions = {};
  QkvOutputs<float> nothing = outputs.out();
  nothing.q.rows = nothing.k.rows = nothing.v.rows = 0;
  EXPECT_TRUE(headwise::cuda::PrepareQkv<float>(layer.op, none, nothing, QkvLaunch{}).ok());
}
#endif

}  // namespace
