#include "core/io/safetensors_index.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Error(const std::string& text) {
  const absl::Status status = ParseSafetensorsIndex(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(SafetensorsIndex, ListsTensorsAndShards) {
  const absl::StatusOr<SafetensorsIndex> index = ParseSafetensorsIndex(
      R"({"metadata": {"total_size": 12, "weight_map": {"b": 1}},
          "weight_map": {"b": "two.safetensors", "a": "one.safetensors", "c": "two.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->shards, (std::vector<std::string>{"one.safetensors", "two.safetensors"}));
  EXPECT_EQ(index->shard_of.size(), 3u);
  EXPECT_EQ(index->shard_of.at("c"), "two.safetensors");
}

TEST(SafetensorsIndex, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(Error("{\"weight_map\": {"), HasSubstr("not valid JSON: parse error at line 1"));
  EXPECT_THAT(Error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(R"({"weight_map": 1e99999})"), HasSubstr("number overflow"));
  EXPECT_THAT(Error("[]"), HasSubstr("expected an object with an object weight_map"));
  EXPECT_THAT(Error(R"({"weight_map": []})"), HasSubstr("expected an object"));
  EXPECT_THAT(Error(R"({"weight_map": {}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(Error(R"({"weight_map": {"w": 3}})"),
              AllOf(HasSubstr("shard of tensor 'w'"), HasSubstr("found number")));
  EXPECT_THAT(Error(R"({"weight_map": {"w": "a", "v": "b", "w": "a"}})"),
              HasSubstr("lists tensor 'w' twice"));
}

TEST(SafetensorsIndex, NoIndexPointsOutsideOfItsDirectory) {
  for (const char* file : {"../secret", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b"}) {
    EXPECT_THAT(Error(std::string(R"({"weight_map": {"w": ")") + file + "\"}}"),
                HasSubstr("without directories"))
        << file;
  }
}

}  // namespace
}  // namespace headwise
