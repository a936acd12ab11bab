// IntegerRotaryTable: a rotary table made by integer arithmetic only, so that goldens do not depend
// on libm.
//
// Every entry is a point of the unit circle with rational coordinates,
//
//   cos = (q^2 - p^2) / (q^2 + p^2),  sin = 2 p q / (q^2 + p^2),
//
// with q = 2^15 and p in [-q, q) a hash of (position, pair), turned by 0-3 quarter turns, truncated
// to 30 bits and rounded once to float by the conversion. So cos^2 + sin^2 is 1 up to that
// rounding, as in a real table, and position 0 is the identity. The angles themselves mean nothing.
//
//   const RotaryTable table = IntegerRotaryTable(/*length=*/64, /*rotary_dim=*/32, pairing);
#ifndef HEADWISE_CORE_ROPE_TESTING_INTEGER_ROTARY_TABLE_H_
#define HEADWISE_CORE_ROPE_TESTING_INTEGER_ROTARY_TABLE_H_

#include <cstdint>

#include "core/rope/rotary_table.h"

namespace headwise {

// length >= 0 and rotary_dim even and >= 0 (checked). Pairings differ in nothing but the label.
RotaryTable IntegerRotaryTable(std::int64_t length, std::int64_t rotary_dim, RotaryPairing pairing);

}  // namespace headwise

#endif  // HEADWISE_CORE_ROPE_TESTING_INTEGER_ROTARY_TABLE_H_
