// RotaryTable: cos and sin of every (position, frequency pair), built once on the host in double
// and rounded once to fp32.
//
//   inv_freq[i] = theta^(-2 i / R),  angle = position * inv_freq[i],  i in [0, R/2)
//
// (RoFormer, arXiv:2104.09864.) Where a model was stretched to longer contexts, a scaling changes the
// frequencies first (rotary_scaling.h), and yarn multiplies cos and sin by its attention factor,
// before the rounding. R is the number of rotated elements of a head, 0 <= R <= D, even;
// elements from R on pass through. Pair i uses column i in both pairings: kHalf rotates elements
// i and i + R/2, kInterleaved 2i and 2i + 1. The table is immutable after creation; safe to share
// between threads. libm differs between systems in a few entries per 100,000, hence Hash(): ranks
// and checkpoints compare it.
//
//   const RotaryTable table = *RotaryTable::Create({.length = 4096, .rotary_dim = 64});
//   table.Cos(17)[3];  // cos(17 * 10000^(-6/64))
#ifndef HEADWISE_CORE_ROPE_ROTARY_TABLE_H_
#define HEADWISE_CORE_ROPE_ROTARY_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rope/rotary_scaling.h"

namespace headwise {

enum class RotaryPairing { kHalf, kInterleaved };

// "half", "interleaved".
const char* Name(RotaryPairing pairing);

class RotaryTable {
 public:
  struct Options {
    std::int64_t length = 0;      // positions [0, length)
    std::int64_t rotary_dim = 0;  // R
    double theta = 10000.0;
    RotaryPairing pairing = RotaryPairing::kHalf;
    RotaryScaling scaling;
  };

  // 16 GiB of cos: a bound on mistyped lengths, far beyond any context.
  static constexpr std::int64_t kMaxEntries = std::int64_t{1} << 32;

  // kInvalidArgument if length < 0, R is odd or negative, theta is not a positive finite number, the
  // scaling's numbers make no sense, or the table would have more than kMaxEntries entries.
  static absl::StatusOr<RotaryTable> Create(const Options& options);

  // A table from given values, row-major [length, R/2]: for goldens and for scalings that
  // rotary_scaling.h does not know. kInvalidArgument as in Create(), or if cos or sin does not hold exactly length * R/2
  // values.
  static absl::StatusOr<RotaryTable> FromValues(std::int64_t length, std::int64_t rotary_dim,
                                                RotaryPairing pairing, std::vector<float> cos,
                                                std::vector<float> sin);

  std::int64_t length() const { return length_; }
  std::int64_t rotary_dim() const { return rotary_dim_; }
  RotaryPairing pairing() const { return pairing_; }
  // R/2 values for one position; 0 <= position < length().
  const float* Cos(std::int64_t position) const {
    return cos_.data() + position * (rotary_dim_ / 2);
  }
  const float* Sin(std::int64_t position) const {
    return sin_.data() + position * (rotary_dim_ / 2);
  }

  // FNV-1a over length, R, pairing and the bits of every value.
  std::uint64_t Hash() const;

 private:
  RotaryTable() = default;

  std::int64_t length_ = 0;
  std::int64_t rotary_dim_ = 0;
  RotaryPairing pairing_ = RotaryPairing::kHalf;
  std::vector<float> cos_, sin_;  // [length, R/2]
};

}  // namespace headwise

#endif  // HEADWISE_CORE_ROPE_ROTARY_TABLE_H_
