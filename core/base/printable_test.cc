#include "core/base/printable.h"

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(Printable, LeavesAsciiAndShowsTheRest) {
  EXPECT_EQ(Printable("a 'b' \"c\" \\ ~"), "a 'b' \"c\" \\ ~");
  EXPECT_EQ(Printable("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(Printable(std::string_view("\0\xff\xc3\xa9", 4)), "\\x00\\xff\\xc3\\xa9");
  EXPECT_EQ(Printable(""), "");
}

}  // namespace
}  // namespace headwise
