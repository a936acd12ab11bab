#include "model/presets/presets.h"

#include <cstddef>
#include <map>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/counts.h"

namespace headwise {
namespace {

TEST(PresetsTest, EachParsesUnderItsNameAndIsValid) {
  for (const Preset& preset : ListPresets()) {
    const auto config = LoadPreset(preset.name);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->model().name(), preset.name);
    EXPECT_TRUE(ValidateModelConfig(config->model()).ok()) << ValidateModelConfig(config->model());
    EXPECT_LE(config->training().sequence_length(), config->model().max_sequence_length());
    EXPECT_FALSE(preset.summary.empty());
  }
  EXPECT_EQ(ListPresets().front().name, "muse_demo");
}

// Counts how often each leaf field's name stands in a text that sets every field of the messages
// that `message` has. A part that it leaves out (experts, a scaling) is one that the model lacks.
void CountLeaves(const google::protobuf::Message& message, std::map<std::string, int>* counts) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    if (field.message_type() == nullptr) {
      ++(*counts)[field.name()];
    } else if (reflection.HasField(message, &field)) {
      CountLeaves(reflection.GetMessage(message, &field), counts);
    }
  }
}

TEST(PresetsTest, EveryFieldIsSetInTheText) {
  for (const Preset& preset : ListPresets()) {
    std::map<std::string, int> leaves;
    CountLeaves(*LoadPreset(preset.name), &leaves);
    for (const auto& [field, expected] : leaves) {
      int found = 0;
      const std::string key = " " + field + ":";
      for (std::size_t at = preset.text.find(key); at != std::string::npos;
           at = preset.text.find(key, at + 1)) {
        ++found;
      }
      EXPECT_EQ(found, expected) << preset.name << ": " << field;
    }
  }
}

TEST(PresetsTest, DefaultsAreWrittenOut) {
  for (const Preset& preset : ListPresets()) {
    const ModelConfig model = LoadPreset(preset.name)->model();
    EXPECT_EQ(ResolveModelConfig(model).SerializeAsString(), model.SerializeAsString())
        << preset.name;
  }
}

TEST(PresetsTest, Muse17mHasThePublishedSize) {
  const ModelConfig model = LoadPreset("muse_17m")->model();
  EXPECT_EQ(CountParameters(model).total, 17177088);
}

// Of the published models, by their own count or that of their model cards.
TEST(PresetsTest, NativeSizes) {
  EXPECT_EQ(CountParameters(LoadPreset("llama3_8b")->model()).total, 8'030'261'248);
  EXPECT_EQ(CountParameters(LoadPreset("qwen3_8b")->model()).total, 8'190'735'360);
  EXPECT_EQ(CountParameters(LoadPreset("gpt_oss_20b")->model()).total, 20'914'757'184);
  // "816B-A42B" counts neither embedding nor head.
  const ModelConfig model = LoadPreset("muse_spark")->model();
  const ParameterCounts spark = CountParameters(model);
  const std::int64_t head = model.vocab_size() * model.dim();
  EXPECT_EQ((spark.total - 2 * head) / 1'000'000'000, 816);
  EXPECT_EQ((spark.matmul - head) / 1'000'000'000, 42);
  // The name's 30 have a vision tower among them.
  EXPECT_EQ(CountParameters(LoadPreset("muse_glimmer_30b")->model()).total / 1'000'000'000, 27);
}

TEST(PresetsTest, MuseDemoHasAboutFiveMillionParameters) {
  EXPECT_EQ(CountParameters(LoadPreset("muse_demo")->model()).total, 5249280);
}

TEST(PresetsTest, AnUnknownNameGetsTheNearest) {
  const auto config = LoadPreset("muse_dmo");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(
      std::string(config.status().message()),
      "preset 'muse_dmo' does not exist; did you mean 'muse_demo'? (presets: muse_demo, "
      "muse_17m, muse_glimmer_30b, muse_glimmer_tiny, muse_spark, muse_spark_tiny, llama3_8b, "
      "llama3_tiny, qwen3_8b, qwen3_tiny, gpt_oss_20b, gpt_oss_tiny)");
}

}  // namespace
}  // namespace headwise
