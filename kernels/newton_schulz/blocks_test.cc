// Fast path == reference, bit for bit, whatever the blocks: unequal, ranges in any order, columns,
// strided, in place, many problems at once, large ones shared by threads, restarts, odd magnitudes.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/heads/packed_qkv.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/parity.h"

namespace headwise {
namespace {

// Two restarts, of which the second follows a single step.
const NewtonSchulzCoefficients& Restarting() {
  static const auto* const set = new NewtonSchulzCoefficients{.name = "restarting",
                                                              .steps = {{3.5f, -4.75f, 2.0f},
                                                                        {3.25f, -4.5f, 2.0f},
                                                                        {3.0f, -3.2f, 1.2f},
                                                                        {2.0f, -1.5f, 0.5f}},
                                                              .restarts_after = {2, 3}};
  return *set;
}

TEST(Blocks, OfUnequalSizesInOneMatrix) {
  const HeadBlocks blocks = BlocksOfSizes({64, 1, 17, 33, 128, 300, 16, 5});
  FloatMatrix input(blocks.axis_size(), 270);
  Fill(input, 1);
  ExpectParity(Quintic5(), input, blocks, "unequal blocks");
}

TEST(Blocks, OfManyRangesAtEveryGranularity) {
  for (const PackedQkv& layout :
       {*PackedQkv::Interleaved({6, 3, 16}), *PackedQkv::Sectioned({6, 3, 16})}) {
    const HeadBlocks heads = HeadBlocks::FromPacked(layout);
    for (const Granularity granularity :
         {Granularity::kWholeMatrix, Granularity::kProjection, Granularity::kKvGroup,
          Granularity::kHead, Granularity::kHeadGroup}) {
      const HeadBlocks blocks = *heads.Coarsen(granularity, 3);
      FloatMatrix input(blocks.axis_size(), 130);
      Fill(input, 2);
      ExpectParity(Quintic5(), input, blocks,
                   absl::StrCat(Name(layout.packing()), ", ", Name(granularity)));
    }
  }
}

TEST(Blocks, RangesOutOfOrder) {
  std::vector<HeadBlock> blocks(2);
  blocks[0].ranges = {{40, 13}, {0, 7}, {60, 40}};
  blocks[1].ranges = {{53, 7}, {7, 33}};
  FloatMatrix input(100, 90);
  Fill(input, 3);
  ExpectParity(Quintic5(), input, *HeadBlocks::Create(100, blocks), "row ranges");
  FloatMatrix wide(90, 100);
  Fill(wide, 4);
  ExpectParity(Quintic5(), wide, *HeadBlocks::Create(100, blocks, BlockAxis::kColumns),
               "column ranges");
}

TEST(Blocks, OfColumns) {
  for (const std::int64_t rows : {20, 300}) {
    const HeadBlocks blocks = BlocksOfSizes({64, 1, 33, 64, 270}, BlockAxis::kColumns);
    FloatMatrix input(rows, blocks.axis_size());
    Fill(input, 5);
    ExpectParity(Quintic5(), input, blocks, absl::StrCat("column blocks of ", rows, " rows"));
  }
}

TEST(Blocks, RowsBeforeAndAfterEachOtherDoNotMatter) {
  FloatMatrix both(96, 200), alone(64, 200);
  Fill(both, 6);
  for (int r = 0; r < 64; ++r) {
    for (int c = 0; c < 200; ++c) alone.at(r, c) = both.at(32 + r, c);
  }
  const FloatMatrix of_both = FastOf(Quintic5(), both, BlocksOfSizes({32, 64}));
  const FloatMatrix of_alone = FastOf(Quintic5(), alone, HeadBlocks::Whole(64));
  ExpectSameBits(of_both.view().Rows(32, 64), of_alone.view(), "the second of two blocks");
}

TEST(Blocks, StridedMisalignedAndInPlace) {
  const HeadBlocks blocks = BlocksOfSizes({64, 37});
  for (const std::int64_t cols : {150, 20}) {
    FloatMatrix input(101, cols, Layout::kStrided);
    Fill(input, 7);
    const FloatMatrix expected = ReferenceOf(Quintic5(), input, blocks);
    ThreadPool pool(2);
    FloatMatrix output(101, cols, Layout::kStrided);
    ASSERT_TRUE(NewtonSchulz(Quintic5(), {{{input.view(), output.span(), &blocks}}}, pool).ok());
    ExpectSameBits(output.view(), expected.view(), "strided");
    output.ExpectGapsUntouched();

    FloatMatrix in_place = input;
    ASSERT_TRUE(
        NewtonSchulz(Quintic5(), {{{in_place.view(), in_place.span(), &blocks}}}, pool).ok());
    ExpectSameBits(in_place.view(), expected.view(), "in place");
    in_place.ExpectGapsUntouched();

    FloatMatrix reference_in_place = input;
    ASSERT_TRUE(NewtonSchulzReference(
                    Quintic5(), {{{reference_in_place.view(), reference_in_place.span(), &blocks}}})
                    .ok());
    ExpectSameBits(reference_in_place.view(), expected.view(), "reference in place");
  }
}

TEST(Blocks, ManyProblemsAtOnceEqualEachAlone) {
  const std::vector<std::vector<std::int64_t>> sizes = {{64, 64, 64}, {5}, {200, 3}, {33, 96}};
  const std::vector<std::int64_t> widths = {100, 400, 150, 33};
  std::vector<HeadBlocks> blocks;
  std::vector<FloatMatrix> inputs, outputs;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(BlocksOfSizes(sizes[i]));
    inputs.emplace_back(blocks[i].axis_size(), widths[i]);
    Fill(inputs[i], i);
    outputs.emplace_back(blocks[i].axis_size(), widths[i]);
  }
  std::vector<NewtonSchulzProblem> problems;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    problems.push_back({inputs[i].view(), outputs[i].span(), &blocks[i]});
  }
  ThreadPool pool(3);
  ASSERT_TRUE(NewtonSchulz(Quintic5(), problems, pool).ok());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ExpectSameBits<float>(outputs[i].view(), ReferenceOf(Quintic5(), inputs[i], blocks[i]).view(),
                          absl::StrCat("problem ", i));
  }
}

// 0.54 and 0.66 billion operations: past the half billion from which all threads share one block.
TEST(Blocks, LargeOnesAreSharedByThreads) {
  struct Shape {
    std::int64_t rows, cols;
  };
  for (const Shape shape : {Shape{240, 300}, Shape{530, 250}}) {
    FloatMatrix input(shape.rows, shape.cols);
    Fill(input, 8);
    const HeadBlocks blocks = HeadBlocks::Whole(shape.rows);
    const FloatMatrix expected = ReferenceOf(Quintic5(), input, blocks);
    for (const int threads : {1, 2, 3}) {
      ExpectSameBits(FastOf(Quintic5(), input, blocks, threads).view(), expected.view(),
                     absl::StrCat(shape.rows, " x ", shape.cols, ", threads ", threads));
    }
  }
}

TEST(Blocks, OneTwoAndThreeThreadsAgree) {
  const HeadBlocks blocks = BlocksOfSizes({64, 64, 64, 64, 30, 64, 64});
  FloatMatrix input(blocks.axis_size(), 300);
  Fill(input, 9);
  const FloatMatrix one = FastOf(Quintic5(), input, blocks, 1);
  for (const int threads : {2, 3}) {
    ExpectSameBits(FastOf(Quintic5(), input, blocks, threads).view(), one.view(),
                   absl::StrCat(threads, " threads"));
  }
}

TEST(Blocks, Restarts) {
  struct Shape {
    std::int64_t rows, cols;
  };
  for (const Shape shape :
       {Shape{64, 300}, Shape{33, 64}, Shape{513, 20}, Shape{3, 1}, Shape{240, 260}}) {
    FloatMatrix input(shape.rows, shape.cols);
    Fill(input, 10);
    ExpectParity(Restarting(), input, HeadBlocks::Whole(shape.rows),
                 absl::StrCat(shape.rows, " x ", shape.cols));
  }
}

// Subnormal, tiny, huge and mixed blocks, exact zeros and a zero block, side by side.
TEST(Blocks, OddMagnitudes) {
  const float scales[] = {0x1p-149f, 0x1p-130f, 0x1p-126f, 0x1p-60f, 0x1p-41f, 0x1p-40f, 0x1p39f,
                          0x1p40f,   0x1p60f,   0x1p100f,  0x1p127f, 0.0f,     -0.0f};
  const std::int64_t count = std::size(scales), d = 20;
  const HeadBlocks blocks = BlocksOfSizes(std::vector<std::int64_t>(count, d));
  FloatMatrix input(count * d, 70);
  Fill(input, 11, 1.9);
  for (std::int64_t r = 0; r < input.rows(); ++r) {
    for (std::int64_t c = 0; c < input.width(); ++c) {
      float& v = input.at(r, c);
      // The subnormal scales leave a few bits, or one.
      v = scales[r / d] < 0x1p-125f ? std::trunc(v * 10) * scales[r / d] : v * scales[r / d];
      if (c % 7 == 3) v *= 0x1p-80f;  // products of these underflow
      if (r % d == 4) v = c % 2 == 0 ? 0.0f : -0.0f;
    }
  }
  ExpectParity(Quintic5(), input, blocks, "odd magnitudes");
  const FloatMatrix output = FastOf(Quintic5(), input, blocks);
  for (std::int64_t r = 0; r < input.rows(); ++r) {
    for (std::int64_t c = 0; c < input.width(); ++c) {
      ASSERT_TRUE(std::isfinite(output.at(r, c))) << r << ", " << c;
      if (scales[r / d] == 0.0f) {
        ASSERT_TRUE(SameBits(output.at(r, c), 0.0f)) << r << ", " << c;
      }
    }
  }
}

// A non-finite element spoils its own block and nothing else.
TEST(Blocks, NonFiniteElementsStayInTheirBlock) {
  const HeadBlocks blocks = BlocksOfSizes({16, 16, 16, 16});
  FloatMatrix input(64, 40);
  Fill(input, 12);
  const FloatMatrix clean = FastOf(Quintic5(), input, blocks);
  input.at(17, 3) = std::numeric_limits<float>::quiet_NaN();
  input.at(49, 3) = std::numeric_limits<float>::infinity();
  for (const FloatMatrix& output :
       {FastOf(Quintic5(), input, blocks), ReferenceOf(Quintic5(), input, blocks)}) {
    ExpectSameBits(output.view().Rows(0, 16), clean.view().Rows(0, 16), "first block");
    ExpectSameBits(output.view().Rows(32, 16), clean.view().Rows(32, 16), "third block");
  }
}

}  // namespace
}  // namespace headwise
