#include "nlohmann/json.hpp"

#include <string>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(JsonTest, ReadsAHeaderAndRejectsATruncatedOne) {
  const std::string text = R"({"wqkv": {"dtype": "BF16", "shape": [384, 256]}})";
  const nlohmann::json header = nlohmann::json::parse(text);
  EXPECT_EQ(header["wqkv"]["shape"][1], 256);
  const auto truncated = nlohmann::json::parse(text.substr(0, text.size() - 1), nullptr,
                                               /*allow_exceptions=*/false);
  EXPECT_TRUE(truncated.is_discarded());
}

}  // namespace
}  // namespace headwise
