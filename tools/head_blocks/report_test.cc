// What is printed: the table, the JSON, the drawing.
#include "tools/head_blocks/report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr BlockSize kPerHead = {Granularity::kHead, 1};

CheckpointLayout Falcon() {
  return *ResolveHeadBlocks(
      R"({"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 8, "num_kv_heads": 2,
          "new_decoder_architecture": true})",
      {{{"transformer.h.0.self_attention.query_key_value.weight", {96, 64}},
        {"transformer.h.1.self_attention.query_key_value.weight", {96, 64}},
        {"transformer.h.2.self_attention.query_key_value.weight", {95, 64}},
        {"transformer.h.0.ln_attn.weight", {64}},
        {"transformer.h.1.ln_attn.weight", {64}}}});
}

TEST(LayoutTable, LayersThatAgreeShareARow) {
  EXPECT_EQ(
      *LayoutTable(Falcon(), kPerHead, false),
      "weight                                                 times  shape     layout       "
      "blocks  heads, or why whole\n"
      "transformer.h.*.self_attention.query_key_value.weight      2  [96, 64]  interleaved      "
      "12  8 query, 2 key, 2 value\n"
      "transformer.h.*.self_attention.query_key_value.weight      1  [95, 64]  whole             "
      "1  width_mismatch: expected [96, 64] from hidden_size=64, num_attention_heads=8, "
      "new_decoder_architecture=true, num_kv_heads=2, found [95, 64]\n"
      "transformer.h.*.ln_attn.weight                             2  [64]      whole             "
      "-  not_two_dimensional: 1 dimension\n"
      "\n"
      "head blocks   2 of 5 weights, 24 heads, 24 blocks at granularity head\n"
      "whole         2 not_two_dimensional, 1 width_mismatch\n");
}

TEST(LayoutTable, EveryLayerOnItsOwnIfAskedFor) {
  const std::string table = *LayoutTable(Falcon(), kPerHead, true);
  EXPECT_THAT(table, AllOf(HasSubstr("transformer.h.1.self_attention"),
                           HasSubstr("transformer.h.1.ln_attn")));
}

TEST(LayoutTable, BlocksAreThoseOfTheGranularity) {
  EXPECT_THAT(*LayoutTable(Falcon(), {Granularity::kKvGroup, 1}, false),
              HasSubstr("24 heads, 4 blocks at granularity kv_group"));
  EXPECT_THAT(*LayoutTable(Falcon(), {Granularity::kHeadGroup, 2}, false),
              HasSubstr("24 heads, 12 blocks at granularity head_group:2"));
  EXPECT_THAT(LayoutTable(Falcon(), {Granularity::kHeadGroup, 3}, false).status().message(),
              AllOf(HasSubstr("transformer.h.0"), HasSubstr("3 does not divide")));
}

TEST(LayoutJson, HoldsEveryWeightAndTheRangesOfTheExplainedOne) {
  const std::string name = "transformer.h.1.self_attention.query_key_value.weight";
  const nlohmann::json json = nlohmann::json::parse(*LayoutJson(Falcon(), kPerHead, name));
  EXPECT_EQ(json["model_type"], "falcon");
  EXPECT_EQ(json["summary"]["heads"], 24);
  EXPECT_EQ(json["summary"]["declined"]["width_mismatch"], 1);
  ASSERT_EQ(json["weights"].size(), 5u);
  const nlohmann::json& weight = json["weights"][1];
  EXPECT_EQ(weight["name"], name);
  EXPECT_EQ(weight["shape"], (std::vector<int>{96, 64}));
  EXPECT_EQ(weight["layout"], "interleaved");
  EXPECT_EQ(weight["axis"], "rows");
  EXPECT_EQ(weight["blocks"], 12);
  EXPECT_EQ(weight["heads"]["query"], 8);
  EXPECT_EQ(weight["role"], "packed_qkv");
  ASSERT_EQ(weight["ranges"].size(), 12u);
  EXPECT_EQ(weight["ranges"][4]["role"], "key");
  EXPECT_EQ(weight["ranges"][4]["ranges"], (std::vector<std::vector<int>>{{32, 40}}));
  EXPECT_FALSE(json["weights"][0].contains("ranges"));
  EXPECT_EQ(json["weights"][2]["declined"], "width_mismatch");
}

// Names come from files: whatever their bytes, the output is JSON.
TEST(LayoutJson, SurvivesAnyName) {
  const CheckpointLayout layout =
      *ResolveHeadBlocks("{}", {{{std::string("\xff\n\"\0x", 5), {2, 2}}}});
  EXPECT_FALSE(nlohmann::json::parse(*LayoutJson(layout, kPerHead, "")).is_discarded());
}

TEST(LayoutJson, AnUnknownWeightToExplainIsAnError) {
  EXPECT_THAT(LayoutJson(Falcon(), kPerHead, "transformer.h.0.ln_attn.wieght").status().message(),
              HasSubstr("did you mean 'transformer.h.0.ln_attn.weight'"));
}

// And a line of the table is a line.
TEST(LayoutTable, NamesAreShownInAscii) {
  const std::string name = "a\n\x1b[31m.weight";
  const CheckpointLayout layout = *ResolveHeadBlocks("{}", {{{name, {2, 2}}}});
  for (const bool every_layer : {false, true}) {
    EXPECT_THAT(*LayoutTable(layout, kPerHead, every_layer),
                HasSubstr("\na\\x0a\\x1b[31m.weight "));
  }
  EXPECT_THAT(*RowMap(layout, kPerHead, name), HasSubstr("a\\x0a\\x1b[31m.weight  [2, 2]"));
}

TEST(RowMap, DrawsOneLetterAHeadAndALineAKvGroup) {
  EXPECT_EQ(*RowMap(Falcon(), kPerHead, "transformer.h.0.self_attention.query_key_value.weight"),
            "transformer.h.0.self_attention.query_key_value.weight  [96, 64]\n"
            "layout        interleaved, heads on the rows\n"
            "from          2 x (4 query, 1 key, 1 value) of 8 rows; hidden_size=64, "
            "num_attention_heads=8, new_decoder_architecture=true, num_kv_heads=2\n"
            "blocks        12 at granularity head\n"
            "\n"
            "      row  one letter a head: Q query (8), K key (8), V value (8)\n"
            "        0  QQQQKV  query 0-3, key 0, value 0\n"
            "       48  QQQQKV  query 4-7, key 1, value 1\n"
            "       96  end\n");
}

TEST(RowMap, ListsTheBlocksOfACoarserGranularity) {
  EXPECT_THAT(*RowMap(Falcon(), {Granularity::kProjection, 1},
                      "transformer.h.0.self_attention.query_key_value.weight"),
              HasSubstr("  block 0: 64 rows: 0-31, 48-79\n"
                        "  block 1: 16 rows: 32-39, 80-87\n"
                        "  block 2: 16 rows: 40-47, 88-95\n"));
}

TEST(RowMap, SectionsAndManyHeadsStayReadable) {
  const CheckpointLayout layout =
      *ResolveHeadBlocks(R"({"model_type": "mpt", "d_model": 200, "n_heads": 100})",
                         {{{"transformer.blocks.0.attn.Wqkv.weight", {600, 200}}}});
  EXPECT_THAT(*RowMap(layout, kPerHead, "transformer.blocks.0.attn.Wqkv.weight"),
              AllOf(HasSubstr("        0  " + std::string(64, 'Q') + "  query 0-63\n"),
                    HasSubstr("query 64-99, key 0-27\n")));
  const CheckpointLayout neox = *ResolveHeadBlocks(
      R"({"model_type": "gpt_neox", "hidden_size": 200, "num_attention_heads": 100})",
      {{{"gpt_neox.layers.0.attention.query_key_value.weight", {600, 200}}}});
  EXPECT_THAT(*RowMap(neox, kPerHead, "gpt_neox.layers.0.attention.query_key_value.weight"),
              HasSubstr("        0  QKV  query 0, key 0, value 0\n"
                        "        6  QKV  query 1, key 1, value 1\n"
                        "      ...  97 more like these\n"
                        "      594  QKV  query 99, key 99, value 99\n"));
}

TEST(RowMap, AWholeWeightSaysWhy) {
  EXPECT_THAT(*RowMap(Falcon(), kPerHead, "transformer.h.0.ln_attn.weight"),
              HasSubstr("whole         one block: not_two_dimensional\n"));
  EXPECT_THAT(RowMap(Falcon(), kPerHead, "transformer.h.0.ln_attn.wieght").status().message(),
              HasSubstr("did you mean 'transformer.h.0.ln_attn.weight'"));
}

TEST(ParseBlockSize, KnowsItsNames) {
  for (const char* name : {"whole_matrix", "projection", "kv_group", "head", "head_group:8"}) {
    EXPECT_EQ(ToString(*ParseBlockSize(name)), name);
  }
  for (const char* name : {"", "heads", "head_group", "head_group:", "head_group:0",
                           "head_group:-1", "head_group:x"}) {
    EXPECT_THAT(ParseBlockSize(name).status().message(), HasSubstr("expected whole_matrix"))
        << name;
  }
}

}  // namespace
}  // namespace headwise
