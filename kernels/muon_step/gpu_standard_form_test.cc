// What gpu_benchmark compares with is Newton-Schulz: the update in double, to bf16's accuracy. On host
// products.
#include "kernels/muon_step/gpu_standard_form.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/coefficients.h"
#include "kernels/newton_schulz/double_standard_form.h"

namespace headwise {
namespace {

TEST(GpuStandardForm, IsNewtonSchulzOfEveryBlock) {
  constexpr std::int64_t kBlocks = 3, kD = 12, kN = 50;
  std::vector<BFloat16> x;
  std::vector<DoubleMatrix> blocks;
  for (int block = 0; block < kBlocks; ++block) {
    DoubleMatrix m = GaussianMatrix(kD, kN, block);
    double norm = 0;
    for (const double v : m.elements) norm += v * v;
    for (double& v : m.elements) {
      x.push_back(Narrow<BFloat16>(static_cast<float>(v / std::sqrt(norm))));
      v = double{Widen(x.back())};
    }
    blocks.push_back(std::move(m));
  }
  const auto form = GpuStandardForm::Create(kBlocks, kD, kN, x);
  ASSERT_TRUE(form.ok()) << form.status();
  ASSERT_TRUE(form->Enqueue(nullptr).ok());
  for (int block = 0; block < kBlocks; ++block) {
    DoubleMatrix o = blocks[block];
    for (std::size_t i = 0; i < o.elements.size(); ++i) {
      o.elements[i] = double{Widen(form->result()[block * kD * kN + i])};
    }
    EXPECT_LE(RelativeDifference(o, StandardForm(Quintic5(), blocks[block])), 2e-2) << block;
  }
}

}  // namespace
}  // namespace headwise
