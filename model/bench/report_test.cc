// What `muse bench` prints of its samples.
#include "model/bench/report.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

UnitResult SomeUnit() {
  return {.unit = "train",
          .tokens = 100,
          .done = 100,
          .flops = 600,
          .floor_flops = 1000,
          .fused = {2, 2, 2},
          .unfused = {3, 4, 5},
          .floor = {1, 1, 1}};
}

TEST(ReportTest, FiguresOfAUnit) {
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(SomeUnit())) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 8);
  EXPECT_EQ(figures["train/fused/time"].summary.median, 2000);
  EXPECT_EQ(figures["train/fused/time"].unit, "ms");
  EXPECT_EQ(figures["train/fused/rate"].summary.median, 50);
  // 300 operations a second of 1000.
  EXPECT_DOUBLE_EQ(figures["train/fused/share_of_product"].summary.median, 0.3);
  EXPECT_DOUBLE_EQ(figures["train/unfused/share_of_product"].summary.median, 0.15);
  EXPECT_DOUBLE_EQ(figures["train/unfused_over_fused"].summary.median, 2);
  EXPECT_DOUBLE_EQ(figures["train/unfused_over_fused"].summary.spread, 0.25);
  EXPECT_DOUBLE_EQ(figures["train/product"].summary.median, 1e-6);
  EXPECT_THAT(UnitLines(SomeUnit()), HasSubstr("unfused / fused 2.000, spread 25.0 %"));
}

TEST(ReportTest, OneRoundHasNoSpread) {
  UnitResult unit = SomeUnit();
  unit.fused = unit.unfused = unit.floor = {2};
  EXPECT_THAT(UnitLines(unit), HasSubstr("2000.000        - "));
  EXPECT_THAT(UnitLines(unit), HasSubstr("unfused / fused 1.000, spread -\n"));
  const KernelResult kernel = {.name = "k", .bytes = 1, .copied = 1, .seconds = {2}, .copy = {1}};
  EXPECT_THAT(KernelLine(kernel), HasSubstr("2000.000        - "));
  const auto spread = [](const Figure& figure) {
    return nlohmann::json::parse(ToJson(figure, {}))["spread"];
  };
  EXPECT_TRUE(spread(Figures(unit)[0]).is_null());
  EXPECT_TRUE(spread(Figures(SomeUnit())[0]).is_number());
  EXPECT_EQ(spread(Figures(kernel)[0]), 0);  // a count, which was not measured
}

TEST(ReportTest, FiguresOfDecodingAreOfACopy) {
  UnitResult decode = SomeUnit();
  decode.unit = "decode";
  decode.flops = decode.floor_flops = 0;
  decode.bytes = 4e9;
  decode.floor_bytes = 1e9;
  decode.unfused.clear();
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(decode)) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 4);
  EXPECT_DOUBLE_EQ(figures["decode/fused/share_of_copy"].summary.median, 2);
  EXPECT_DOUBLE_EQ(figures["decode/copy"].summary.median, 1);
}

TEST(ReportTest, FiguresOfAKernel) {
  const KernelResult kernel = {.name = "wo.forward",
                               .tokens = 100,
                               .calls = 6,
                               .bytes = 2000000000,
                               .copied = 1e9,
                               .flops = 600,
                               .floor_flops = 1000,
                               .seconds = {2, 2},
                               .copy = {1, 1},
                               .product = {1, 1}};
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(kernel)) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 6);
  EXPECT_EQ(figures["kernel/wo.forward/calls"].summary.median, 6);
  EXPECT_EQ(figures["kernel/wo.forward/bytes"].summary.median, 2e9);
  EXPECT_EQ(figures["kernel/wo.forward/time"].summary.median, 2000);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/bandwidth"].summary.median, 1);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/share_of_copy"].summary.median, 1);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/share_of_product"].summary.median, 0.3);
}

TEST(ReportTest, JsonHasTheDocumentedKeysInOneLine) {
  const BenchContext context = {.preset = "dir/a\"b\n\xff.textproto",
                                .layers = 6,
                                .dtype = "BF16",
                                .device = "cpu",
                                .threads = 2};
  const std::string line = ToJson(Figures(SomeUnit())[0], context);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys,
              ElementsAre("name", "unit", "value", "spread", "mean", "min", "max", "samples",
                          "tokens", "rows", "preset", "layers", "dtype", "device", "threads"));
  EXPECT_EQ(json["name"], "train/fused/time");
  EXPECT_EQ(json["value"], 2000);
  EXPECT_EQ(json["samples"], 3);
  EXPECT_EQ(json["tokens"], 100);
  EXPECT_EQ(json["layers"], 6);
}

}  // namespace
}  // namespace headwise
