#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

absl::StatusOr<int> ParseHeads(const std::string& text) {
  int heads = 0;
  if (!absl::SimpleAtoi(text, &heads)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a number, found '", text, "'"));
  }
  return heads;
}

TEST(AbslTest, StatusCarriesItsMessage) {
  EXPECT_EQ(ParseHeads("12").value(), 12);
  EXPECT_EQ(ParseHeads("twelve").status().ToString(),
            "INVALID_ARGUMENT: expected a number, found 'twelve'");
}

TEST(AbslTest, Strings) {
  EXPECT_EQ(absl::StrFormat("%.2f %s %d", 0.5, std::string("x"), 7), "0.50 x 7");
  const std::vector<std::string> parts = absl::StrSplit("a,b,c", ',');
  EXPECT_EQ(absl::StrJoin(parts, "+"), "a+b+c");
  absl::Cord cord("long ");
  cord.Append(std::string(1000, 'x'));
  EXPECT_EQ(cord.size(), 1005u);
}

TEST(AbslTest, Containers) {
  absl::flat_hash_map<std::string, int> hash = {{"q", 8}, {"k", 2}};
  hash["v"] = 2;
  EXPECT_EQ(hash.size(), 3u);
  const absl::btree_map<std::string, int> ordered(hash.begin(), hash.end());
  EXPECT_EQ(ordered.begin()->first, "k");
  const absl::InlinedVector<int, 2> inlined = {1, 2, 3};
  EXPECT_EQ(absl::MakeConstSpan(inlined).back(), 3);
}

TEST(AbslTest, TimeMutexCleanupNumeric) {
  EXPECT_EQ(absl::FormatDuration(absl::Milliseconds(1500)), "1.5s");
  absl::Mutex mutex;
  int value = 0;
  const auto add = [&](int by) { value += by; };
  const absl::FunctionRef<void(int)> reference = add;
  {
    const absl::MutexLock lock(&mutex);
    const absl::Cleanup twice = [&] { reference(40); };
    reference(2);
  }
  EXPECT_EQ(value, 42);
  EXPECT_EQ(absl::uint128(uint64_t{1} << 63) * 4 / 2, absl::MakeUint128(1, 0));
}

}  // namespace
}  // namespace headwise
