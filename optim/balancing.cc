#include "optim/balancing.h"

#include <cstddef>

#include "core/base/check.h"

namespace headwise {

void MoveBalancingBias(double rate, absl::Span<const float> loads, absl::Span<float> bias) {
  HW_CHECK_EQ(loads.size(), bias.size());
  double total = 0;
  for (const float load : loads) total += load;
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const double scaled = static_cast<double>(loads[e]) * static_cast<double>(loads.size());
    if (scaled == total) continue;
    bias[e] = static_cast<float>(bias[e] + (scaled < total ? rate : -rate));
  }
}

}  // namespace headwise
