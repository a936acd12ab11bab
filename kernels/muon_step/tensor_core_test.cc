#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/double_step.h"
#include "kernels/muon_step/emulated_step.h"
#include "kernels/muon_step/test_weights.h"
#include "kernels/newton_schulz/spectra.h"

namespace headwise {
namespace {

TEST(Measure, All) {
  using G = float;
  const char* names[] = {"gauss","log2","log4","log6","log8","half","spike"};
  for (const auto* set : {&Quintic5(), &PolarExpress8()}) {
    for (const std::int64_t d : {8, 63, 64, 65, 127, 128}) {
      for (const std::int64_t n : {d, d + 37, std::int64_t{600}}) {
        std::vector<TestWeight<G>> weights;
        int k = 0;
        for (const MakeSpectrum make : kSevenSpectra) {
          const DoubleMatrix m = make(d, n, k++);
          TestWeight<G>& w = weights.emplace_back(HeadBlocks::Whole(d), n, weights.size());
          SetZero(w.weight);
          SetZero(w.momentum);
          for (std::int64_t i = 0; i < d; ++i) for (std::int64_t j = 0; j < n; ++j) w.gradient.at(i, j) = Narrow<G>(static_cast<float>(m.at(i, j)));
        }
        const auto hyper = OnlyTheUpdate(*set, 0);
        for (const auto mode : {MuonMode::kContract, MuonMode::kTensorCore}) {
          auto after = weights;
          const auto s = StepEmulated(hyper, after, {.mode = mode});
          ASSERT_TRUE(s.ok()) << s;
          std::printf("%s d %ld n %ld %s", set->name.c_str(), d, n, mode == MuonMode::kContract ? "contract" : "tensor  ");
          for (int i = 0; i < 7; ++i) std::printf(" %s %.1e", names[i], UpdateError(hyper, weights[i], after[i], weights[i].blocks.blocks()[0]));
          std::printf("\n");
        }
      }
    }
  }
}
}  // namespace
}  // namespace headwise
