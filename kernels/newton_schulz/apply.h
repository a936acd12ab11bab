// The last product, O = (Q s) X, on a strip of columns.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_APPLY_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_APPLY_H_

#include <cstdint>

#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

// Columns of a strip: a multiple of every tile's rows.
inline constexpr std::int64_t kStripColumns = 96;

// `out`, with kStripColumns rows a panel, becomes columns [begin, begin + kStripColumns) of (Q s)
// X, stored as X is. qs is Q s [d, d]; x is X's panels, whose rows up to the end of the strip may
// be read (what comes of rows beyond X is meaningless). Each element is an fma chain over d,
// ascending.
void ApplyStrip(const Panels& qs, const Panels& x, std::int64_t d, std::int64_t begin,
                const Panels& out);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_APPLY_H_
