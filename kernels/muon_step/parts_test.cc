// The parts of a step, on shares of a weight, are the whole step bit for bit.
#include "kernels/muon_step/parts.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"

namespace headwise {
namespace {

// Columns [begin, begin + count).
template <typename T>
RowSpan<T> Columns(const RowSpan<T>& x, std::int64_t begin, std::int64_t count) {
  return RowSpan<T>(x.data + begin, x.rows, count, x.stride);
}

TEST(MuonParts, TogetherAreTheStep) {
  ThreadPool pool(2);
  for (const UpdateScale scale : {UpdateScale::kAspect, UpdateScale::kMatchRmsAdamW,
                                  UpdateScale::kSpectral, UpdateScale::kUnit}) {
    for (const bool nesterov : {true, false}) {
      for (const std::int64_t cut : {1, 16, 23, 40}) {
        const MuonHyperparameters hyper = {.learning_rate = 0.05,
                                           .momentum = 0.9,
                                           .nesterov = nesterov,
                                           .weight_decay = 0.3,
                                           .gradient_scale = 0.7,
                                           .scale = scale};
        const std::int64_t rows = 70, cols = 41;
        TestWeight<float> whole(HeadBlocks::Whole(rows), cols, 5, Layout::kStrided);
        TestWeight<float> parts = whole;
        const MuonWeight<float> view = whole.view();
        ASSERT_TRUE(MuonStepReference<float>(hyper, {{view}}).ok());

        std::vector<float> elements(static_cast<std::size_t>(rows * cols));
        const RowSpan<float> u(elements.data(), rows, cols);
        const MuonWeight<float> p = parts.view();
        for (const auto& [begin, count] : {std::pair(std::int64_t{0}, cut), {cut, cols - cut}}) {
          MuonMomentum(hyper, Columns(p.momentum, begin, count), Columns(p.gradient, begin, count),
                       Columns(u, begin, count));
        }
        ASSERT_TRUE(NewtonSchulz(*hyper.coefficients, {{{u, u, p.blocks}}}, pool).ok());
        for (const auto& [begin, count] : {std::pair(std::int64_t{0}, cut), {cut, cols - cut}}) {
          MuonWrite(hyper, rows, cols, Columns(RowSpan<const float>(u), begin, count),
                    Columns(p.weight, begin, count));
        }
        const std::string what = absl::StrCat(Name(scale), ", cut at ", cut);
        ExpectSameBits<float>(parts.weight.view(), whole.weight.view(), what);
        ExpectSameBits<float>(parts.momentum.view(), whole.momentum.view(), what);
        parts.weight.ExpectGapsUntouched();
        parts.momentum.ExpectGapsUntouched();
      }
    }
  }
}

}  // namespace
}  // namespace headwise
