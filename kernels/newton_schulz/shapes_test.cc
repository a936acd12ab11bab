// Fast path == reference, bit for bit, on whole matrices of many shapes: around the vector, the
// panel, the piece, the slice, the strip and the Gram chunk, taller, wider and square.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/parity.h"

namespace headwise {
namespace {

class ShapesTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(ShapesTest, FastPathEqualsReference) {
  const std::int64_t rows = GetParam();
  for (const std::int64_t cols : {1, 2, 63, 64, 65, 255, 256, 257, 511, 513, 1000, 1408}) {
    FloatMatrix input(rows, cols);
    Fill(input, /*seed=*/static_cast<std::uint64_t>(rows * 10000 + cols));
    ExpectParity(Quintic5(), input, HeadBlocks::Whole(rows), absl::StrCat(rows, " x ", cols));
    if (testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ShapesTest,
                         testing::Values(1, 2, 3, 5, 16, 31, 32, 33, 63, 64, 65, 96, 128, 129, 200),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace headwise
