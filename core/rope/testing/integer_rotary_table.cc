#include "core/rope/testing/integer_rotary_table.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/check.h"
#include "core/base/split_mix.h"

namespace headwise {
namespace {

// numerator / denominator in [-1, 1] to 30 bits, then one rounding.
float Ratio(std::int64_t numerator, std::int64_t denominator) {
  const std::int64_t fixed = numerator * (std::int64_t{1} << 30) / denominator;
  return static_cast<float>(fixed) * 0x1p-30f;
}

}  // namespace

RotaryTable IntegerRotaryTable(std::int64_t length, std::int64_t rotary_dim,
                               RotaryPairing pairing) {
  HW_CHECK_GE(length, 0);
  HW_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0) << "rotary_dim " << rotary_dim;
  constexpr std::int64_t kQ = 1 << 15;
  std::vector<float> cos, sin;
  for (std::int64_t position = 0; position < length; ++position) {
    for (std::int64_t pair = 0; pair < rotary_dim / 2; ++pair) {
      std::uint64_t hash = SplitMixScramble(static_cast<std::uint64_t>(position) << 32 ^
                                            static_cast<std::uint64_t>(pair) ^ kSplitMixIncrement);
      if (position == 0) hash = kQ;  // p = 0, no turn
      const std::int64_t p = static_cast<std::int64_t>(hash % (2 * kQ)) - kQ;
      std::int64_t x = kQ * kQ - p * p;
      std::int64_t y = 2 * p * kQ;
      for (std::uint64_t turn = hash >> 62; turn > 0; --turn) {
        std::swap(x, y);
        x = -x;
      }
      cos.push_back(Ratio(x, kQ * kQ + p * p));
      sin.push_back(Ratio(y, kQ * kQ + p * p));
    }
  }
  absl::StatusOr<RotaryTable> table =
      RotaryTable::FromValues(length, rotary_dim, pairing, std::move(cos), std::move(sin));
  HW_CHECK(table.ok()) << table.status();
  return *std::move(table);
}

}  // namespace headwise
