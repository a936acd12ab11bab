// The sizes of the benchmark are those of the preset that it names.
#include "tests/gpu/decoder_cases.h"

#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"

namespace headwise {
namespace {

TEST(DecoderCases, SizesAreMuseSparks) {
  const absl::StatusOr<RunConfig> run = LoadPreset("muse_spark");
  ASSERT_TRUE(run.ok()) << run.status();
  const ModelConfig& model = run->model();
  EXPECT_EQ(kMuseSpark.dim, model.dim());
  EXPECT_EQ(kMuseSpark.query_heads, model.attention().num_query_heads());
  EXPECT_EQ(kMuseSpark.kv_heads, model.attention().num_kv_heads());
  EXPECT_EQ(kMuseSpark.head_dim, model.attention().head_dim());
  EXPECT_EQ(kMuseSpark.window, model.attention().window_pattern(0));
  EXPECT_EQ(kMuseSpark.expert_dim, model.ffn().moe().expert_dim());
  EXPECT_EQ(kMuseSpark.experts_per_token, model.ffn().moe().experts_per_token());
  EXPECT_EQ(kMuseSpark.vocabulary, model.vocab_size());
}

}  // namespace
}  // namespace headwise
