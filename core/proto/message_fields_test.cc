#include "core/proto/message_fields.h"

#include "core/proto/config.pb.h"
#include "core/proto/config_descriptor.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using testing::HasSubstr;

std::string Error(const absl::Status& status) { return std::string(status.message()); }

TEST(SetField, SetsEveryKindOfField) {
  RunConfig config;
  ASSERT_TRUE(SetField("training.steps", "120", &config).ok());
  ASSERT_TRUE(SetField("optimizer.muon.learning_rate", "1e-3", &config).ok());
  ASSERT_TRUE(SetField("model.attention.output_gate", "true", &config).ok());
  ASSERT_TRUE(SetField("training.compute_dtype", "BF16", &config).ok());
  ASSERT_TRUE(SetField("data.path", "a \"b\" \\c.txt", &config).ok());
  ASSERT_TRUE(SetField("data.document_separator", "-1", &config).ok());
  ASSERT_TRUE(SetField("model.attention.window_pattern", "128, 128,0", &config).ok());
  EXPECT_EQ(config.training().steps(), 120);
  EXPECT_EQ(config.optimizer().muon().learning_rate(), 1e-3);
  EXPECT_TRUE(config.model().attention().output_gate());
  EXPECT_EQ(config.training().compute_dtype(), BF16);
  EXPECT_EQ(config.data().path(), "a \"b\" \\c.txt");
  EXPECT_EQ(config.data().document_separator(), -1);
  EXPECT_THAT(config.model().attention().window_pattern(), testing::ElementsAre(128, 128, 0));
  ASSERT_TRUE(SetField("model.attention.window_pattern", "[16, 0]", &config).ok());
  EXPECT_THAT(config.model().attention().window_pattern(), testing::ElementsAre(16, 0));
  ASSERT_TRUE(SetField("model.attention.window_pattern", "[]", &config).ok());
  EXPECT_EQ(config.model().attention().window_pattern_size(), 0);
}

TEST(SetField, ErrorsNameTheFieldTheTypeAndTheNearest) {
  RunConfig config;
  config.mutable_training()->set_steps(7);
  EXPECT_THAT(Error(SetField("training.stepz", "1", &config)),
              HasSubstr("unknown field 'stepz' in training; did you mean 'steps'?"));
  EXPECT_THAT(Error(SetField("zzz", "1", &config)),
              HasSubstr("fields: model, training, optimizer, data"));
  EXPECT_THAT(Error(SetField("training", "1", &config)), HasSubstr("is a group of fields"));
  EXPECT_THAT(Error(SetField("training.steps.x", "1", &config)),
              HasSubstr("training.steps has no fields"));
  EXPECT_THAT(Error(SetField("training.steps", "many", &config)),
              HasSubstr("training.steps: expected int64, found 'many'"));
  EXPECT_THAT(Error(SetField("training.steps", "1.5", &config)), HasSubstr("found '1.5'"));
  EXPECT_THAT(Error(SetField("training.steps", "", &config)), HasSubstr("found ''"));
  EXPECT_THAT(Error(SetField("training.steps", "1 seed: 4", &config)), HasSubstr("expected int64"));
  EXPECT_THAT(Error(SetField("training.compute_dtype", "BF61", &config)),
              HasSubstr("expected FP32|BF16, found 'BF61'; did you mean 'BF16'?"));
  EXPECT_THAT(Error(ApplySetting("training.steps", &config)), HasSubstr("expected path=value"));
  EXPECT_EQ(config.training().steps(), 7);
}

TEST(PrintAllFields, PrintsZerosAndParsesBack) {
  RunConfig config;
  config.mutable_model()->mutable_attention()->add_window_pattern(128);
  config.mutable_model()->mutable_attention()->add_window_pattern(0);
  config.mutable_data()->set_path("with \"quotes\"");
  config.mutable_optimizer()->mutable_adamw()->set_epsilon(1e-8);
  const std::string text = PrintAllFields(config);
  EXPECT_THAT(text, HasSubstr("steps: 0\n"));
  EXPECT_THAT(text, HasSubstr("window_pattern: [128, 0]\n"));
  EXPECT_THAT(text, HasSubstr("compute_dtype: FP32\n"));
  RunConfig back;
  ASSERT_TRUE(ParseTextProto("printed", text, &back).ok());
  // Printing sets empty groups, which then compare equal field by field.
  EXPECT_EQ(PrintAllFields(back), text);
  EXPECT_EQ(back.data().path(), config.data().path());
}

TEST(FieldValues, ListsEveryLeafInOrder) {
  RunConfig config;
  config.mutable_model()->set_name("m");
  config.mutable_model()->mutable_attention()->add_window_pattern(4);
  const auto values = FieldValues(config);
  EXPECT_EQ(values.size(), ListFields(config, "").size());
  EXPECT_EQ(values[0], (std::pair<std::string, std::string>("model.name", "\"m\"")));
  EXPECT_THAT(values, testing::Contains(std::pair<std::string, std::string>(
                          "model.attention.window_pattern", "[4]")));
}

TEST(ParseTextProto, ErrorsNameFileLineAndNearestField) {
  RunConfig config;
  EXPECT_THAT(Error(ParseTextProto("run.textproto", "training {\n  stepz: 3\n}\n", &config)),
              testing::AllOf(HasSubstr("run.textproto:2:"), HasSubstr("did you mean 'steps'?")));
  EXPECT_THAT(Error(ParseTextProto("x", "training { steps: }", &config)), HasSubstr("x:1:"));
}

TEST(ListFields, HasEveryLeafWithItsComment) {
  const std::vector<FieldHelp> fields = ListFields(RunConfig(), ConfigDescriptor());
  bool found = false;
  for (const FieldHelp& field : fields) {
    EXPECT_FALSE(field.comment.empty()) << field.path << " has no comment in config.proto";
    if (field.path != "training.compute_dtype") continue;
    found = true;
    EXPECT_EQ(field.type, "FP32|BF16");
    EXPECT_THAT(field.comment, HasSubstr("Master weights are always fp32"));
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace headwise
