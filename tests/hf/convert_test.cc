// Folders of every family: which element becomes which, both ways with the same bits, and what is
// said about a folder that is not whole.
#include "model/hf/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_set.h"
#include "core/io/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/hf/family.h"
#include "model/hf/hf_config.h"
#include "model/hf/hf_folder.h"
#include "model/hf/model_source.h"
#include "model/hf/shard_plan.h"
#include "model/hf/tensor_copy.h"
#include "model/hf/tensor_map.h"
#include "model/presets/presets.h"
#include "model/train/checkpoint.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kGolden[] = {"llama3",  "llama3_scaled", "llama_bf16",   "llama_fp16",
                                   "mistral", "qwen3",         "qwen3_window", "qwen3_moe",
                                   "gpt_oss", "muse_glimmer",  "muse_spark"};

std::string GoldenDir(const std::string& name) { return "tests/golden/data/" + name; }

HfFolder Golden(const std::string& name) {
  absl::StatusOr<HfFolder> folder = HfFolder::Open(GoldenDir(name));
  HW_CHECK(folder.ok()) << folder.status();
  return *std::move(folder);
}

std::string FileText(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  HW_CHECK(text.ok()) << text.status();
  return *text;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

class ConvertTest : public testing::Test {
 protected:
  ConvertTest() : root_(testing::TempDir() + "/convert") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  std::string Dir(const std::string& name) const { return root_ + "/" + name; }

  absl::Status ToNative(const std::string& from, const std::string& to) {
    const absl::StatusOr<HfFolder> folder = HfFolder::Open(from);
    if (!folder.ok()) return folder.status();
    return HfToNative(*folder, to, RunConfigOf(folder->model()), {}).status();
  }

  const std::string root_;
};

// A folder like the golden one, to spoil.
struct Folder {
  explicit Folder(const std::string& name) {
    const SafetensorsSet set = Golden(name).tensors();
    for (const SafetensorsTensor* tensor : set.tensors()) {
      tensors[tensor->name] = *set.Read(tensor->name);
    }
    config = json::parse(FileText(GoldenDir(name) + "/config.json"));
  }

  std::string Write(const std::string& path) const {
    fs::remove_all(path);
    fs::create_directories(path);
    std::vector<std::pair<std::string, Tensor>> list(tensors.begin(), tensors.end());
    HW_CHECK(WriteSafetensors(path + "/model.safetensors", list).ok());
    std::ofstream(path + "/config.json") << config.dump(2);
    return path;
  }

  std::map<std::string, Tensor> tensors;
  json config;
};

TEST_F(ConvertTest, ThereAndBackIsTheSameFolderByteForByte) {
  for (const char* name : kGolden) {
    ASSERT_TRUE(ToNative(GoldenDir(name), Dir("native")).ok()) << name;
    const auto report = NativeToHf(Dir("native"), Dir("again"), {});
    ASSERT_TRUE(report.ok()) << name << ": " << report.status();
    EXPECT_EQ(report->files, 1);
    for (const char* file : {"config.json", "generation_config.json", "model.safetensors"}) {
      EXPECT_EQ(FileText(Dir("again/") + file), FileText(GoldenDir(name) + "/" + file))
          << name << " " << file;
    }
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
}

TEST_F(ConvertTest, ShardsInAndOut) {
  ASSERT_TRUE(ToNative(GoldenDir("llama_sharded"), Dir("native")).ok());
  const auto report = NativeToHf(Dir("native"), Dir("again"), {.max_shard_bytes = 16000});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->files, 3);
  const HfFolder before = Golden("llama_sharded"), after = *HfFolder::Open(Dir("again"));
  EXPECT_EQ(after.tensors().num_files(), report->files);
  ASSERT_EQ(after.tensors().Names(), before.tensors().Names());
  for (const std::string& name : before.tensors().Names()) {
    EXPECT_TRUE(SameBits(*before.tensors().Read(name), *after.tensors().Read(name))) << name;
  }
  const json index = json::parse(FileText(Dir("again/model.safetensors.index.json")));
  EXPECT_EQ(index["metadata"], json::parse(FileText(GoldenDir("llama_sharded") +
                                                    "/model.safetensors.index.json"))["metadata"]);
}

// Fixed places, told without the map.
TEST_F(ConvertTest, EveryElementGoesWhereItBelongs) {
  ASSERT_TRUE(ToNative(GoldenDir("gpt_oss"), Dir("native")).ok());
  const SafetensorsFile native = *SafetensorsFile::Open(Dir("native/model.safetensors"));
  const SafetensorsSet hf = Golden("gpt_oss").tensors();
  const std::string theirs = "model.layers.1.";
  // H = 4, G = 2, D = 16, N = 64: slots q0 q1 k0 v0 q2 q3 k1 v1.
  const Tensor wqkv = *native.Read("layers.1.attention.wqkv");
  const Tensor bias = *native.Read("layers.1.attention.wqkv_bias");
  const std::pair<const char*, int> slots[] = {{"q", 0}, {"q", 1}, {"k", 0}, {"v", 0},
                                               {"q", 2}, {"q", 3}, {"k", 1}, {"v", 1}};
  for (int slot = 0; slot < 8; ++slot) {
    const std::string name = absl::StrCat(theirs, "self_attn.", slots[slot].first, "_proj.");
    const Tensor weight = *hf.Read(name + "weight"), their_bias = *hf.Read(name + "bias");
    for (int row = 0; row < 16; ++row) {
      const int from = slots[slot].second * 16 + row, to = slot * 16 + row;
      EXPECT_EQ(bias.data<float>()[to], their_bias.data<float>()[from]);
      EXPECT_EQ(std::memcmp(wqkv.data<float>() + to * 64, weight.data<float>() + from * 64, 256),
                0);
    }
  }
  // E = 4, F = 12, stored [E, N, 2F] and [E, F, N].
  const Tensor w1 = *native.Read("layers.1.ffn.w1"), w3 = *native.Read("layers.1.ffn.w3");
  const Tensor w2 = *native.Read("layers.1.ffn.w2"), b3 = *native.Read("layers.1.ffn.w3_bias");
  const Tensor gate_up = *hf.Read(theirs + "mlp.experts.gate_up_proj");
  const Tensor down = *hf.Read(theirs + "mlp.experts.down_proj");
  const Tensor gate_up_bias = *hf.Read(theirs + "mlp.experts.gate_up_proj_bias");
  EXPECT_EQ(w1.shape(), (Shape{4, 12, 64}));
  EXPECT_EQ(w2.shape(), (Shape{4, 64, 12}));
  for (int e = 0; e < 4; ++e) {
    for (int f = 0; f < 12; ++f) {
      EXPECT_EQ(b3.data<float>()[e * 12 + f], gate_up_bias.data<float>()[e * 24 + 2 * f + 1]);
      for (int n = 0; n < 64; ++n) {
        const float* pair = gate_up.data<float>() + (e * 64 + n) * 24 + 2 * f;
        EXPECT_EQ(w1.data<float>()[(e * 12 + f) * 64 + n], pair[0]);
        EXPECT_EQ(w3.data<float>()[(e * 12 + f) * 64 + n], pair[1]);
        EXPECT_EQ(w2.data<float>()[(e * 64 + n) * 12 + f],
                  down.data<float>()[(e * 12 + f) * 64 + n]);
      }
    }
  }
}

// Both sides of every map are covered exactly once, in either packing, and its parameters are the
// decoder's.
TEST_F(ConvertTest, MapsAreBijectionsOntoTheDecodersParameters) {
  for (const char* name : kGolden) {
    const HfFolder folder = Golden(name);
    for (const QkvPacking packing : {INTERLEAVED_PER_KV_GROUP, SECTIONED}) {
      ModelConfig model = folder.model();
      model.mutable_attention()->set_packing(packing);
      const TensorMap map = MapTensors(folder.family(), model);
      std::map<std::string, std::vector<int>> ours, theirs;
      for (const ParameterMap& p : map.parameters()) {
        ours[p.parameter].resize(static_cast<std::size_t>(NumElements(p.shape)));
      }
      for (const auto& [tensor, shape] : map.tensors()) {
        theirs[tensor].resize(static_cast<std::size_t>(NumElements(shape)));
      }
      for (const ParameterMap& parameter : map.parameters()) {
        for (const TensorPiece& p : parameter.pieces) {
          for (std::int64_t i = 0; i < p.count[0]; ++i) {
            for (std::int64_t j = 0; j < p.count[1]; ++j) {
              for (std::int64_t k = 0; k < p.count[2]; ++k) {
                const auto at = [&](std::int64_t begin, const std::array<std::int64_t, 3>& s) {
                  return static_cast<std::size_t>(begin + i * s[0] + j * s[1] + k * s[2]);
                };
                ++ours[parameter.parameter].at(at(p.our_begin, p.our_stride));
                ++theirs[p.tensor].at(at(p.their_begin, p.their_stride));
              }
            }
          }
        }
      }
      for (const auto* side : {&ours, &theirs}) {
        for (const auto& [tensor, counts] : *side) {
          EXPECT_EQ(std::count(counts.begin(), counts.end(), 1),
                    static_cast<std::ptrdiff_t>(counts.size()))
              << name << " " << tensor;
        }
      }
      const auto decoder = Decoder::Create(model, {.device = Device::kMeta});
      ASSERT_TRUE(decoder.ok()) << name << ": " << decoder.status();
      std::map<std::string, Shape> wanted, found;
      for (const Parameter* p : (*decoder)->parameters()) wanted[p->name] = p->value.shape();
      for (const ParameterMap& p : map.parameters()) found[p.parameter] = p.shape;
      EXPECT_EQ(found, wanted) << name;
    }
  }
}

TEST_F(ConvertTest, WhatIsNotRunIsNamedAndCarried) {
  const HfFolder folder = Golden("muse_glimmer");
  const auto report = HfToNative(folder, Dir("native"), RunConfigOf(folder.model()), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->not_run, static_cast<std::int64_t>(folder.not_run().size()));
  EXPECT_EQ(report->first_not_run, "model.vision_adapter.fc1.weight");
  const SafetensorsFile unused = *SafetensorsFile::Open(Dir("native/unused.safetensors"));
  EXPECT_EQ(unused.Names(), folder.not_run());
  EXPECT_FALSE(fs::exists(Dir("native/optimizer.safetensors")));
  EXPECT_EQ(FileText(Dir("native/hf/config.json")), folder.config_text());
}

// A constant of old folders, and the copy of a tied head, change nothing.
TEST_F(ConvertTest, OldFoldersHaveMore) {
  Folder folder("llama3_scaled");
  folder.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] =
      Tensor::Zeros({8}, DType::kF32, Device::kCpu);
  folder.tensors["lm_head.weight"] = folder.tensors["model.embed_tokens.weight"].Clone();
  ASSERT_TRUE(ToNative(folder.Write(Dir("old")), Dir("native")).ok());
  ASSERT_TRUE(NativeToHf(Dir("native"), Dir("again"), {}).ok());
  const HfFolder again = *HfFolder::Open(Dir("again"));
  EXPECT_EQ(again.not_run().size(), 1u);
  folder.tensors["lm_head.weight"].data<float>()[5] += 1;
  const absl::Status status = ToNative(folder.Write(Dir("old")), Dir("other"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("lm_head.weight differs from model.embed_tokens.weight"));
}

TEST_F(ConvertTest, AModelMadeHereBecomesAFamily) {
  RunConfig config = *LoadPreset("muse_17m");
  ModelConfig& model = *config.mutable_model();
  model.set_dim(32);
  model.set_num_layers(3);
  model.mutable_attention()->set_num_query_heads(4);
  model.mutable_attention()->set_head_dim(8);
  model.mutable_attention()->mutable_rope()->set_rotary_dim(0);
  model.mutable_attention()->set_packing(SECTIONED);
  model.mutable_ffn()->set_hidden_dim(24);
  model = ResolveModelConfig(model);
  const auto decoder = *Decoder::Create(model, {});
  decoder->Initialize(7);
  CheckpointState state;
  *state.mutable_config() = config;
  fs::create_directories(Dir("run"));
  ASSERT_TRUE(SaveCheckpoint(Dir("run"), state, decoder->parameters(), {}, 0).ok());
  const auto report = NativeToHf(Dir("run"), Dir("hf"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->model_type, "llama");

  const HfFolder folder = *HfFolder::Open(Dir("hf"));
  EXPECT_EQ(ModelDifference(folder.model(), model), "");
  // Into either packing.
  for (const QkvPacking packing : {SECTIONED, INTERLEAVED_PER_KV_GROUP}) {
    ModelConfig other = model;
    other.mutable_attention()->set_packing(packing);
    const auto again = *Decoder::Create(other, {.mode = DecoderMode::kInference});
    ASSERT_TRUE(folder.LoadWeights(other, again->parameters()).ok());
    for (std::size_t i = 0; i < again->parameters().size(); ++i) {
      const bool packed = again->parameters()[i]->name.find("wqkv") != std::string::npos;
      EXPECT_EQ(SameBits(again->parameters()[i]->value, decoder->parameters()[i]->value),
                !packed || packing == SECTIONED)
          << again->parameters()[i]->name;
    }
  }
  ModelConfig gated = model;
  gated.mutable_attention()->set_qkv_bias(true);
  const auto other = *Decoder::Create(gated, {});
  EXPECT_THAT(
      std::string(folder.LoadWeights(gated, other->parameters()).message()),
      HasSubstr("does not fit the model asked for, in model.layers.0.self_attn.k_proj.bias"));

  model.mutable_attention()->mutable_rope()->set_rotary_dim(4);
  *state.mutable_config() = config;
  state.set_step(1);
  state.set_next_sequence(config.training().batch_size());
  ASSERT_TRUE(SaveCheckpoint(Dir("run"), state, decoder->parameters(), {}, 0).ok());
  EXPECT_THAT(std::string(NativeToHf(Dir("run"), Dir("none"), {}).status().message()),
              HasSubstr("model.attention.rope.rotary_dim"));
  EXPECT_FALSE(fs::exists(Dir("none")));
}

TEST_F(ConvertTest, AConvertedCheckpointHoldsWeightsOnly) {
  ASSERT_TRUE(ToNative(GoldenDir("qwen3"), Dir("native")).ok());
  const FoundCheckpoint found = *OpenCheckpoint(Dir("native"));
  EXPECT_TRUE(found.state.weights_only());
  EXPECT_THAT(std::string(LoadOptimizerState(found, {}).message()),
              HasSubstr("holds weights only"));
  std::ofstream(Dir("native/hf/config.json"), std::ios::app) << " ";
  EXPECT_THAT(std::string(OpenCheckpoint(Dir("native")).status().message()),
              HasSubstr("hf/config.json: expected"));
}

TEST_F(ConvertTest, TargetsAppearWholeOrNotAtAll) {
  fs::create_directories(Dir("there"));
  const absl::Status there = ToNative(GoldenDir("llama3"), Dir("there"));
  EXPECT_EQ(there.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(there.message()), HasSubstr("is there already"));
  EXPECT_TRUE(fs::is_empty(Dir("there")));
  fs::remove(Dir("there"));
  Folder folder("llama3");
  folder.tensors["model.norm.weight"].data<float>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(ToNative(folder.Write(Dir("bad")), Dir("there")).ok());
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(root_)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::ElementsAre("bad"));
}

class BrokenFolderTest : public ConvertTest {
 protected:
  std::string Error(const Folder& folder) {
    return std::string(ToNative(folder.Write(Dir("bad")), Dir("to")).message());
  }
  std::string OpenError() { return std::string(HfFolder::Open(Dir("bad")).status().message()); }
};

TEST_F(BrokenFolderTest, Tensors) {
  Folder folder("llama3");
  folder.tensors.erase("model.layers.2.mlp.up_proj.weight");
  EXPECT_THAT(Error(folder),
              HasSubstr("model.safetensors: expected a tensor model.layers.2.mlp.up_proj.weight "
                        "[32, 64] by config.json, found none"));
  folder = Folder("llama3");
  folder.tensors["model.layers.0.mlp.gate_porj.weight"] =
      Tensor::Zeros({1}, DType::kF32, Device::kCpu);
  EXPECT_THAT(Error(folder),
              AllOf(HasSubstr("holds a tensor model.layers.0.mlp.gate_porj.weight"),
                    HasSubstr("did you mean 'model.layers.0.mlp.gate_proj.weight'")));
  folder = Folder("llama3");
  folder.tensors["model.norm.weight"] = Tensor::Zeros({63}, DType::kF32, Device::kCpu);
  EXPECT_THAT(Error(folder),
              HasSubstr("model.norm.weight: expected [64] by config.json, found [63]"));
  folder = Folder("llama3");
  folder.tensors["model.norm.weight"] = Tensor::Zeros({64}, DType::kU8, Device::kCpu);
  EXPECT_THAT(Error(folder), HasSubstr("model.norm.weight: U8 is not supported: expected F32"));
  folder = Folder("llama3");
  folder.tensors["model.layers.1.self_attn.k_proj.weight"].data<float>()[64 * 3 + 5] =
      std::nanf("");
  EXPECT_THAT(Error(folder), HasSubstr("model.layers.1.self_attn.k_proj.weight[3, 5] is nan; "
                                       "expected finite F32 weights"));
  // A layer more than the configuration has, and one less.
  folder = Folder("llama3");
  folder.config["num_hidden_layers"] = 5;
  EXPECT_THAT(Error(folder), HasSubstr("holds a tensor model.layers.5."));
  folder.config["num_hidden_layers"] = 7;
  EXPECT_THAT(Error(folder), HasSubstr("expected a tensor model.layers.6."));
  EXPECT_FALSE(fs::exists(Dir("to")));
}

TEST_F(BrokenFolderTest, ATypeOfItsOwnIsNoFault) {
  Folder folder("llama3");
  const Tensor norm = Tensor::Zeros({64}, DType::kBF16, Device::kCpu);
  norm.data<BFloat16>()[2] = RoundToBFloat16(0.5f);
  folder.tensors["model.norm.weight"] = norm;
  ASSERT_EQ(Error(folder), "");
  const Tensor ours =
      *SafetensorsFile::Open(Dir("to/model.safetensors"))->Read("final_norm.weight");
  EXPECT_EQ(ours.data<float>()[2], 0.5f);
  ASSERT_TRUE(NativeToHf(Dir("to"), Dir("again"), {}).ok());
  EXPECT_TRUE(SameBits(*HfFolder::Open(Dir("again"))->tensors().Read("model.norm.weight"), norm));
}

TEST_F(BrokenFolderTest, Files) {
  EXPECT_THAT(OpenError(), HasSubstr("bad: expected a directory, found none"));
  std::ofstream(Dir("bad")) << "x";
  EXPECT_THAT(OpenError(), HasSubstr("bad: expected a directory, found something else"));
  fs::remove(Dir("bad"));
  fs::create_directories(Dir("bad"));
  EXPECT_THAT(OpenError(), HasSubstr("bad/config.json: expected a file, found none"));
  Folder folder("llama3");
  folder.Write(Dir("bad"));
  std::ofstream(Dir("bad/config.json")) << folder.config.dump().substr(0, 100);
  EXPECT_THAT(OpenError(), HasSubstr("bad/config.json: not valid JSON: parse error"));
  folder.Write(Dir("bad"));
  fs::remove(Dir("bad/model.safetensors"));
  EXPECT_THAT(OpenError(), HasSubstr("bad: expected model.safetensors or"));
  std::ofstream(Dir("bad/pytorch_model.bin")) << "x";
  EXPECT_THAT(OpenError(), HasSubstr("found pytorch_model.bin; try to load it in transformers"));

  // A header that claims 200 MB, in a file that is as large.
  std::ofstream(Dir("bad/model.safetensors"), std::ios::binary)
      << std::string("\x00\xc2\xeb\x0b\0\0\0\0{}", 10);
  fs::resize_file(Dir("bad/model.safetensors"), 300'000'000);
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("bad/model.safetensors: "), HasSubstr("200000000")));
  folder.Write(Dir("bad"));
  fs::resize_file(Dir("bad/model.safetensors"), fs::file_size(Dir("bad/model.safetensors")) - 1);
  EXPECT_THAT(OpenError(), HasSubstr("truncated"));
}

TEST_F(BrokenFolderTest, Shards) {
  fs::copy(GoldenDir("llama_sharded"), Dir("bad"));
  ASSERT_EQ(OpenError(), "");
  const std::string third = Dir("bad/model-00003-of-00003.safetensors");
  fs::remove(third);
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(third), HasSubstr("No such file")));
  fs::copy(Dir("bad/model-00002-of-00003.safetensors"), third);
  EXPECT_THAT(OpenError(), HasSubstr("in one shard, found it in model-00002-of-00003.safetensors "
                                     "and in model-00003-of-00003.safetensors"));
  ASSERT_TRUE(WriteSafetensors(third, {}).ok());
  EXPECT_THAT(OpenError(), HasSubstr("expected tensor lm_head.weight in model-00003-of-00003"));
}

TEST(TensorCopyTest, WhatIsTooLargeForHalfPrecisionIsFound) {
  const Tensor half = Tensor::Zeros({2}, DType::kF16, Device::kCpu);
  const float values[] = {65519.0f, 65520.0f};
  CopyOut({.tensor = "t",
           .parameter = "p",
           .count = {1, 1, 2},
           .our_stride = {0, 0, 1},
           .their_stride = {0, 0, 1}},
          values, half);
  EXPECT_THAT(std::string(CheckFinite("t", half).message()), HasSubstr("t[1] is inf"));
}

TEST(ShardPlanTest, FilesAreFilledInOrder) {
  const std::vector<SafetensorsEntry> entries = {{"a", DType::kF32, {10}},
                                                 {"b", DType::kF32, {10}},
                                                 {"c", DType::kF32, {30}},
                                                 {"d", DType::kF32, {1}}};
  const std::vector<Shard> one = PlanShards(entries, 1000);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].file, "model.safetensors");
  const std::vector<Shard> three = PlanShards(entries, 80);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].entries.size(), 2u);
  EXPECT_EQ(three[1].entries.size(), 1u);  // larger than a file may be
  EXPECT_EQ(three[2].file, "model-00003-of-00003.safetensors");
}

TEST(ShardPlanTest, Sizes) {
  EXPECT_EQ(*ParseShardSize("5GB"), 5'000'000'000);
  EXPECT_EQ(*ParseShardSize("2KiB"), 2048);
  EXPECT_EQ(*ParseShardSize("77"), 77);
  for (const char* wrong : {"", "GB", "0GB", "-1GB", "5gb", "5 GB", "99999999999GB", "1.5GB"}) {
    EXPECT_THAT(std::string(ParseShardSize(wrong).status().message()),
                HasSubstr("expected a size such as 5GB"))
        << wrong;
  }
}

}  // namespace
}  // namespace headwise
