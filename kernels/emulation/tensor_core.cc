#include "kernels/emulation/tensor_core.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype/fp16.h"

namespace headwise::emulation {
namespace {

constexpr int kRows = 16, kColumns = 8, kDepth = 16;

double Half(unsigned word, int which) {
  return double{Float16ToFloat(static_cast<std::uint16_t>(word >> (16 * which)))};
}

// Toward zero. NaN and infinities stay.
float Chop(double x) {
  const auto nearest = static_cast<float>(x);
  if (std::isfinite(x) && std::abs(double{nearest}) > std::abs(x)) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - 1);
  }
  return nearest;
}

}  // namespace

void MultiplyFragments(const MmaOperands (&lanes)[32]) {
  double a[kRows][kDepth], b[kDepth][kColumns], d[kRows][kColumns];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    const MmaOperands& from = lanes[lane];
    for (int i = 0; i < 2; ++i) {
      a[group][pair + i] = Half(from.a[0], i);
      a[group + 8][pair + i] = Half(from.a[1], i);
      a[group][pair + 8 + i] = Half(from.a[2], i);
      a[group + 8][pair + 8 + i] = Half(from.a[3], i);
      b[pair + i][group] = Half(from.b[0], i);
      b[pair + 8 + i][group] = Half(from.b[1], i);
      d[group][pair + i] = double{from.d[i]};
      d[group + 8][pair + i] = double{from.d[2 + i]};
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < kColumns; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    float* const to = lanes[lane].d;
    for (int i = 0; i < 2; ++i) {
      to[i] = Chop(d[group][pair + i]);
      to[2 + i] = Chop(d[group + 8][pair + i]);
    }
  }
}

}  // namespace headwise::emulation
