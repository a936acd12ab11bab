#include "tools/typecheck/json.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/typecheck/testing.h"

namespace headwise::typecheck {
namespace {

using Json = nlohmann::json;

Json Parsed(const Report& report, bool explain = false) {
  return Json::parse(ReportJson(report, {.explain = explain}));
}

TEST(ReportJson, SaysWhatTheReportSays) {
  const Report report = ReportFor(RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32"));
  const Json json = Parsed(report);
  EXPECT_EQ(json["model"], "muse_spark");
  EXPECT_EQ(json["accepted"], true);
  EXPECT_EQ(json["mesh"]["ranks"], 64);
  EXPECT_EQ(json["mesh"]["dense"][2], (Json{{"axis", "tp"}, {"size", 8}}));
  EXPECT_EQ(json["mesh"]["expert"][1], (Json{{"axis", "ep"}, {"size", 32}}));
  EXPECT_EQ(json["parameters"].size(), report.parameters.size());
  const Json& wqkv = json["parameters"][2];
  EXPECT_EQ(wqkv["name"], "layers.0-61.attention.wqkv");
  EXPECT_EQ(wqkv["count"], 62);
  EXPECT_EQ(wqkv["shape"], (Json{16 * 10 * 64, 8192}));
  EXPECT_EQ(wqkv["local_shape"], (Json{2 * 10 * 64, 8192}));
  EXPECT_TRUE(wqkv["bytes"].is_number_integer());
  std::int64_t sum = 0;
  for (const Json& row : json["communication"]) sum += row["bytes"].get<std::int64_t>();
  EXPECT_EQ(json["bytes_sent"], sum);
  EXPECT_EQ(json["memory"][0]["total"], report.memory[0].total());
  EXPECT_EQ(json["gradients"][0]["steps"], (Json{"all_reduce@dp -> R", "all_reduce@cp -> R"}));
  EXPECT_EQ(json["mistakes"], Json::array());
  EXPECT_FALSE(json["parameters"][0].contains("explanation"));
  EXPECT_GT(Parsed(report, true)["parameters"][0]["explanation"].size(), 3);
}

TEST(ReportJson, OfAMistakeHasTheSameKeys) {
  const Json right = Parsed(ReportFor(RequestFor("muse_spark_tiny", "tp=2")));
  const Json wrong = Parsed(
      ReportFor(RequestFor("muse_spark_tiny", "tp=2", false, {"forward layers.*.attention.in:"})));
  const Json no_layout = Parsed(ReportFor(RequestFor("muse_spark_tiny", "tp=3")));
  const auto keys = [](const Json& json) {
    std::set<std::string> names;
    for (const auto& [name, value] : json.items()) names.insert(name);
    return names;
  };
  EXPECT_EQ(keys(right), keys(wrong));
  EXPECT_EQ(keys(right), keys(no_layout));
  EXPECT_EQ(wrong["accepted"], false);
  ASSERT_EQ(wrong["mistakes"].size(), 1);
  const Json& mistake = wrong["mistakes"][0];
  EXPECT_EQ(mistake["module"], "layers.0.attention");
  EXPECT_EQ(mistake["op"], "linear");
  EXPECT_EQ(mistake["axis"], "tp");
  EXPECT_EQ(mistake["fixes"][0]["edit"], "forward layers.*.attention.in: convert(F32)@tp -> R");
  EXPECT_GT(mistake["fixes"][0]["bytes_sent"].get<std::int64_t>(), 0);
  EXPECT_EQ(no_layout["mistakes"].size(), 1);
}

TEST(ReportJson, IsJsonWhateverTheModelIsCalled) {
  CheckRequest request = RequestFor("muse_spark_tiny", "");
  request.model.set_name("\"\xff\n\\");
  EXPECT_TRUE(Parsed(ReportFor(request)).contains("model"));
}

}  // namespace
}  // namespace headwise::typecheck
