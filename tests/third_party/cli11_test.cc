#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(Cli11Test, ParsesASubcommandAndRejectsAnUnknownFlag) {
  CLI::App app("muse");
  CLI::App* train = app.add_subcommand("train", "");
  int steps = 0;
  train->add_option("--steps", steps, "");
  app.parse("train --steps 12", /*program_name_included=*/false);
  EXPECT_TRUE(train->parsed());
  EXPECT_EQ(steps, 12);
  EXPECT_THROW(app.parse("train --stepz 12", /*program_name_included=*/false), CLI::ExtrasError);
}

}  // namespace
}  // namespace headwise
