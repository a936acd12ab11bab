// Device code's functions, emulated, have the bits of kernels/common/math.h.
#include "kernels/common/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/common/cuda/math_probe.h"

namespace headwise {
namespace {

TEST(CudaMath, HasTheHostsBits) {
  // Every 2053rd float: all exponents, both signs, subnormals; then the edges, and NaN.
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 2053) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const std::uint32_t bits : {0x00000000u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                                   0xffc00000u, 0x00000001u, 0x80000001u, 0x3f800000u}) {
    x.push_back(std::bit_cast<float>(bits));
  }
  std::vector<float> results(5 * x.size());
  ASSERT_EQ(cuda_emulated::ProbeMath(x.data(), results.data(), static_cast<int>(x.size())),
            absl::OkStatus());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const SigmoidPair pair(x[i]);
    const float expected[] = {Exp(x[i]), Log(x[i]), Tanh(x[i]), pair.value, pair.complement};
    for (int f = 0; f < 5; ++f) {
      const float actual = results[5 * i + f];
      if (std::isnan(actual) && std::isnan(expected[f])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected[f]))
          << "function " << f << " of " << x[i] << ": " << actual << ", expected " << expected[f];
    }
  }
}

}  // namespace
}  // namespace headwise
