#include "core/rope/testing/integer_rotary_table.h"

#include <cstdint>
#include <set>

#include "core/rope/rotary_table.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(IntegerRotaryTable, EntriesLieOnTheUnitCircleAndDiffer) {
  const RotaryTable table = IntegerRotaryTable(257, 64, RotaryPairing::kInterleaved);
  std::set<std::pair<float, float>> points;
  int quadrants[4] = {};
  for (std::int64_t position = 0; position < table.length(); ++position) {
    for (int i = 0; i < 32; ++i) {
      const double c = table.Cos(position)[i];
      const double s = table.Sin(position)[i];
      EXPECT_NEAR(c * c + s * s, 1.0, 2e-7) << position << " " << i;
      points.emplace(table.Cos(position)[i], table.Sin(position)[i]);
      ++quadrants[(c < 0) * 2 + (s < 0)];
    }
  }
  EXPECT_GT(points.size(), 257u * 32u * 9 / 10);
  for (const int n : quadrants) EXPECT_GT(n, 257 * 32 / 5);
}

TEST(IntegerRotaryTable, PositionZeroIsTheIdentity) {
  const RotaryTable table = IntegerRotaryTable(1, 8, RotaryPairing::kHalf);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(table.Cos(0)[i], 1.0f);
    EXPECT_EQ(table.Sin(0)[i], 0.0f);
  }
}

TEST(IntegerRotaryTable, LongerTablesExtendShorterOnes) {
  const RotaryTable few = IntegerRotaryTable(3, 8, RotaryPairing::kHalf);
  const RotaryTable many = IntegerRotaryTable(9, 16, RotaryPairing::kHalf);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(few.Cos(2)[i], many.Cos(2)[i]);
    EXPECT_EQ(few.Sin(2)[i], many.Sin(2)[i]);
  }
}

// Goldens elsewhere rest on these bits: they must never change.
TEST(IntegerRotaryTable, BitsArePinned) {
  EXPECT_EQ(IntegerRotaryTable(64, 64, RotaryPairing::kHalf).Hash(), 0x849e47dbe6fa5a34u);
  EXPECT_EQ(IntegerRotaryTable(64, 64, RotaryPairing::kInterleaved).Hash(), 0x7c827d1ecf1f3509u);
}

}  // namespace
}  // namespace headwise
