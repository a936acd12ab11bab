// Overlap and FindOverlap say what counting bytes says.
#include "kernels/common/memory_overlap.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

// Every byte of the rows.
std::set<std::uintptr_t> Bytes(const MemoryRows& memory) {
  std::set<std::uintptr_t> bytes;
  if (memory.empty()) return bytes;
  for (std::uintptr_t row = 0; row < static_cast<std::uintptr_t>(memory.rows); ++row) {
    for (std::uintptr_t i = 0; i < memory.width; ++i) {
      bytes.insert(memory.begin + row * memory.stride + i);
    }
  }
  return bytes;
}

bool ShareAByte(const MemoryRows& a, const MemoryRows& b) {
  const std::set<std::uintptr_t> bytes = Bytes(a);
  const std::set<std::uintptr_t> others = Bytes(b);
  return std::any_of(others.begin(), others.end(),
                     [&](std::uintptr_t byte) { return bytes.count(byte) > 0; });
}

class Layouts {
 public:
  std::uintptr_t Draw(std::uintptr_t least, std::uintptr_t most) {
    return std::uniform_int_distribution<std::uintptr_t>(least, most)(random_);
  }
  // Within some 100 bytes; one in eight without bytes.
  MemoryRows Rows(std::uintptr_t stride) {
    return {.begin = Draw(1, 60),
            .rows = static_cast<std::int64_t>(Draw(0, 7) == 0 ? 0 : Draw(1, 4)),
            .width = Draw(1, stride),
            .stride = stride};
  }
  MemoryRows Row() { return {.begin = Draw(1, 200), .rows = 1, .width = Draw(1, 9), .stride = 9}; }

 private:
  std::mt19937_64 random_{7};
};

TEST(Overlap, OfEqualStridesIsSharingAByte) {
  Layouts layouts;
  int overlapping = 0;
  constexpr int kPairs = 20000;
  for (int n = 0; n < kPairs; ++n) {
    const std::uintptr_t stride = layouts.Draw(1, 12);
    const MemoryRows a = layouts.Rows(stride), b = layouts.Rows(stride);
    ASSERT_EQ(Overlap(a, b), ShareAByte(a, b)) << n;
    overlapping += Overlap(a, b);
  }
  EXPECT_GT(overlapping, kPairs / 20);
  EXPECT_LT(overlapping, kPairs / 2);
}

// Two matrices that are columns of one buffer, however many rows each has.
TEST(Overlap, ColumnsOfOneBufferAreToldApart) {
  for (std::uintptr_t left = 1; left < 8; ++left) {
    for (std::uintptr_t right = 0; right < 10; ++right) {
      const MemoryRows a = {.begin = 100, .rows = 3, .width = left, .stride = 10};
      const MemoryRows b = {.begin = 100 + right, .rows = 3, .width = 10 - right, .stride = 10};
      EXPECT_EQ(Overlap(a, b), right < left) << left << ", " << right;
      EXPECT_EQ(Overlap(b, a), right < left) << left << ", " << right;
    }
  }
}

// Of other strides it may say so without a shared byte, never the other way round.
TEST(Overlap, MissesNoSharedByteOfOtherStrides) {
  Layouts layouts;
  for (int n = 0; n < 20000; ++n) {
    const MemoryRows a = layouts.Rows(layouts.Draw(1, 12)), b = layouts.Rows(layouts.Draw(1, 12));
    ASSERT_TRUE(Overlap(a, b) || !ShareAByte(a, b)) << n;
  }
}

TEST(FindOverlap, FindsAPairWhereThereIsOneOfWhichOneIsWritten) {
  Layouts layouts;
  int found = 0, none = 0;
  for (int n = 0; n < 4000; ++n) {
    std::vector<MemoryUse> uses(layouts.Draw(0, 9));
    for (MemoryUse& use : uses) use = {layouts.Row(), layouts.Draw(0, 2) == 0};
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      for (std::size_t j = i + 1; j < uses.size(); ++j) {
        if ((uses[i].written || uses[j].written) && ShareAByte(uses[i].memory, uses[j].memory)) {
          pairs.insert({i, j});
        }
      }
    }
    const std::optional<std::pair<std::size_t, std::size_t>> pair = FindOverlap(uses);
    ASSERT_EQ(pair.has_value(), !pairs.empty()) << n;
    ASSERT_TRUE(!pair.has_value() || pairs.count(*pair) == 1) << n;
    ++(pair.has_value() ? found : none);
  }
  EXPECT_GT(found, 400);
  EXPECT_GT(none, 400);
}

}  // namespace
}  // namespace headwise
