// Files, shards, directories and Headwise's own checkpoints, read from their headers.
#include "tools/head_blocks/checkpoint_source.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/proto/checkpoint.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "optim/architectures/testing/checkpoints.h"
#include "tools/head_blocks/testing/sparse_checkpoint.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string At(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(At(name)).parent_path());
    std::ofstream(At(name)) << text;
  }
  // Everything in one: where, headers, layout.
  absl::StatusOr<CheckpointLayout> Resolve(const std::string& weights) const {
    const absl::StatusOr<CheckpointSource> source = FindCheckpointSource("", weights);
    if (!source.ok()) return source.status();
    const absl::StatusOr<TensorHeaders> headers = ReadTensorHeaders(source->weights_path);
    if (!headers.ok()) return headers.status();
    return ResolveCheckpoint(*source, *headers, {});
  }

  std::string directory_;
};

const std::vector<WeightShape> kWeights = {{"model.layers.10.self_attn.q_proj.weight", {64, 64}},
                                           {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
                                           {"model.norm.weight", {64}}};
constexpr char kConfig[] =
    R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})";

TEST_F(CheckpointSourceTest, OneFileBesideItsConfig) {
  Write("config.json", kConfig);
  ASSERT_TRUE(WriteSparseSafetensors(At("model.safetensors"), kWeights).ok());
  for (const std::string& weights : {directory_, At("model.safetensors")}) {
    const absl::StatusOr<CheckpointLayout> layout = Resolve(weights);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ASSERT_EQ(layout->weights.size(), 3u);
    // Layer 2 before layer 10.
    EXPECT_EQ(layout->weights[0].name, "model.layers.2.self_attn.q_proj.weight");
    EXPECT_EQ(Summarize(*layout).blocks, 8);
  }
  const CheckpointSource elsewhere = *FindCheckpointSource("other.json", At("model.safetensors"));
  EXPECT_EQ(elsewhere.config_path, "other.json");
}

TEST_F(CheckpointSourceTest, ShardsThroughTheirIndex) {
  Write("config.json", kConfig);
  ASSERT_TRUE(WriteSparseShards(directory_, kWeights, 3).ok());
  const TensorHeaders headers = *ReadTensorHeaders(At("model.safetensors.index.json"));
  EXPECT_EQ(headers.files, 3);
  EXPECT_EQ(headers.weights.size(), 3u);
  EXPECT_EQ(Summarize(*Resolve(directory_)).blocks, 8);

  fs::remove(At("model-00002-of-00003.safetensors"));
  EXPECT_THAT(Resolve(directory_).status().message(),
              HasSubstr("model-00002-of-00003.safetensors: No such file"));
  ASSERT_TRUE(WriteSparseSafetensors(At("model-00002-of-00003.safetensors"), {}).ok());
  const absl::Status status = Resolve(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("model.layers.2.self_attn.q_proj.weight"), HasSubstr("found none")));
}

// What no index lists is there all the same: a module is confirmed as a whole.
TEST_F(CheckpointSourceTest, TensorsThatTheIndexDoesNotListAreRead) {
  Write("config.json", kConfig);
  ASSERT_TRUE(WriteSparseShards(directory_, kWeights, 3).ok());
  ASSERT_TRUE(WriteSparseSafetensors(At("model-00002-of-00003.safetensors"),
                                     {kWeights[1], {"model.layers.2.self_attn.A_log", {4}}})
                  .ok());
  EXPECT_EQ(ReadTensorHeaders(At("model.safetensors.index.json"))->weights.size(), 4u);
  EXPECT_EQ(Summarize(*Resolve(directory_)).blocks, 4);

  ASSERT_TRUE(
      WriteSparseSafetensors(At("model-00002-of-00003.safetensors"), {kWeights[1], kWeights[2]})
          .ok());
  const absl::Status status = Resolve(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr("expected tensor model.norm.weight in one shard, found it in "
                        "model-00002-of-00003.safetensors and in model-00003-of-00003"));
}

TEST_F(CheckpointSourceTest, ErrorsSayWhereAndWhat) {
  EXPECT_THAT(Resolve(At("nothing")).status().message(), HasSubstr("no such file or directory"));
  EXPECT_THAT(Resolve(directory_).status().message(), HasSubstr("expected model.safetensors"));
  ASSERT_TRUE(WriteSparseSafetensors(At("model.safetensors"), kWeights).ok());
  EXPECT_THAT(Resolve(directory_).status().message(), HasSubstr("no config.json beside"));
  Write("config.json", "{");
  EXPECT_THAT(Resolve(directory_).status().message(),
              HasSubstr(At("config.json") + ": not valid JSON"));
  Write("model.safetensors.index.json", "[]");
  EXPECT_THAT(Resolve(directory_).status().message(), HasSubstr("found both"));
  std::filesystem::remove(At("model.safetensors"));
  EXPECT_THAT(Resolve(directory_).status().message(), HasSubstr("object weight_map"));
  EXPECT_THAT(ReadTensorHeaders(At("config.json")).status().message(), HasSubstr("not valid JSON"));
}

// The model's own declaration, for its own checkpoints.
TEST_F(CheckpointSourceTest, HeadwiseCheckpointsAndRuns) {
  CheckpointState state;
  *state.mutable_config() = *LoadPreset("muse_17m");
  std::string text;
  google::protobuf::TextFormat::PrintToString(state, &text);
  const auto decoder = *Decoder::Create(state.config().model(), {.device = Device::kMeta});
  std::vector<WeightShape> weights;
  std::int64_t heads = 0;
  for (const Parameter* parameter : decoder->parameters()) {
    weights.push_back({parameter->name, parameter->value.shape()});
    if (parameter->head_blocks.has_value()) heads += parameter->head_blocks->size();
  }
  ASSERT_GT(heads, 0);
  Write("run/step-3/state.textproto", "not a state");
  Write("run/step-20/state.textproto", text);
  ASSERT_TRUE(WriteSparseSafetensors(At("run/step-20/model.safetensors"), weights).ok());
  for (const char* path : {"run", "run/step-20", "run/step-20/model.safetensors"}) {
    const absl::StatusOr<CheckpointLayout> layout = Resolve(At(path));
    ASSERT_TRUE(layout.ok()) << path << ": " << layout.status();
    EXPECT_EQ(layout->model_type, "headwise");
    EXPECT_EQ(Summarize(*layout).blocks, heads);
  }

  weights.back().shape[0] += 1;
  ASSERT_TRUE(WriteSparseSafetensors(At("run/step-20/model.safetensors"), weights).ok());
  EXPECT_THAT(Resolve(At("run")).status().message(), HasSubstr("of shape"));
  weights.pop_back();
  ASSERT_TRUE(WriteSparseSafetensors(At("run/step-20/model.safetensors"), weights).ok());
  EXPECT_THAT(Resolve(At("run")).status().message(), HasSubstr("found none"));
  weights.push_back({"stray", {2}});
  ASSERT_TRUE(WriteSparseSafetensors(At("run/step-20/model.safetensors"), weights).ok());
  EXPECT_THAT(Resolve(At("run")).status().message(), HasSubstr("has no tensor stray"));
  Write("run/step-20/state.textproto", "nonsense: 1");
  EXPECT_THAT(Resolve(At("run")).status().message(), HasSubstr("nonsense"));
}

// Muse's wqkv at full size: 16 kv groups of 8 query heads, a key and a value.
TEST_F(CheckpointSourceTest, HeadwiseWeightsOf160Heads) {
  CheckpointState state;
  *state.mutable_config() = *LoadPreset("muse_17m");
  AttentionConfig& attention = *state.mutable_config()->mutable_model()->mutable_attention();
  attention.set_num_query_heads(128);
  attention.set_num_kv_heads(16);
  std::string text;
  google::protobuf::TextFormat::PrintToString(state, &text);
  std::vector<WeightShape> weights;
  const auto decoder = *Decoder::Create(state.config().model(), {.device = Device::kMeta});
  for (const Parameter* parameter : decoder->parameters()) {
    weights.push_back({parameter->name, parameter->value.shape()});
  }
  Write("run/step-1/state.textproto", text);
  ASSERT_TRUE(WriteSparseSafetensors(At("run/step-1/model.safetensors"), weights).ok());
  const absl::StatusOr<CheckpointLayout> layout = Resolve(At("run"));
  ASSERT_TRUE(layout.ok()) << layout.status();
  int fused = 0;
  for (const WeightLayout& weight : layout->weights) {
    if (weight.shape != Shape{160 * 64, 512}) continue;
    ++fused;
    ASSERT_TRUE(weight.blocks.has_value()) << weight.name;
    EXPECT_EQ(weight.blocks->size(), 160);
    EXPECT_EQ(weight.blocks->blocks()[8].role, HeadRole::kKey);
    EXPECT_EQ(weight.blocks->blocks()[10].role, HeadRole::kQuery);
  }
  EXPECT_EQ(fused, 6);
}

// From config.json and headers on disk, at published sizes: what names and shapes alone give.
TEST_F(CheckpointSourceTest, EveryFamilyFromItsHeaders) {
  for (const TestCheckpoint& checkpoint : AllTestCheckpoints()) {
    SCOPED_TRACE(checkpoint.name);
    Write("config.json", checkpoint.config);
    const absl::Status written =
        WriteSparseSafetensors(At("model.safetensors"), checkpoint.Shapes());
    ASSERT_TRUE(written.ok()) << written;
    const absl::StatusOr<CheckpointLayout> layout = Resolve(directory_);
    ASSERT_TRUE(layout.ok()) << layout.status();
    std::map<std::string, const WeightLayout*> found;
    for (const WeightLayout& weight : layout->weights) found[weight.name] = &weight;
    ASSERT_EQ(found.size(), checkpoint.weights.size());
    const CheckpointLayout expected = *ResolveHeadBlocks(checkpoint.config, checkpoint.Shapes());
    for (const WeightLayout& weight : expected.weights) {
      const WeightLayout& actual = *found.at(weight.name);
      EXPECT_EQ(actual.shape, weight.shape) << weight.name;
      EXPECT_EQ(actual.declined, weight.declined) << weight.name;
      ASSERT_EQ(actual.blocks.has_value(), weight.blocks.has_value()) << weight.name;
      if (weight.blocks.has_value()) {
        EXPECT_EQ(actual.blocks->blocks(), weight.blocks->blocks()) << weight.name;
      }
    }
  }
}

TEST_F(CheckpointSourceTest, LlamaOf405BillionParametersIn64Shards) {
  Write("config.json", Llama405BConfig());
  const absl::Status written = WriteSparseShards(directory_, Llama405BWeights(), 64);
  if (written.code() == absl::StatusCode::kUnavailable) {
    GTEST_SKIP() << "this file system holds no sparse files of 13 GB: " << written;
  }
  ASSERT_TRUE(written.ok()) << written;
  // The best of three, since other work may run beside this: it takes hundredths of a second.
  absl::StatusOr<CheckpointLayout> layout;
  std::chrono::duration<double> best = std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    layout = Resolve(directory_);
    best = std::min<std::chrono::duration<double>>(best, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(best.count(), 1.0) << "seconds";
  ASSERT_TRUE(layout.ok()) << layout.status();
  const LayoutSummary summary = Summarize(*layout);
  EXPECT_EQ(summary.weights, 3 + 126 * 9);
  EXPECT_EQ(summary.blocked, 126 * 3);
  EXPECT_EQ(summary.blocks, 126 * (128 + 8 + 8));
}

}  // namespace
}  // namespace headwise
