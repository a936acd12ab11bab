// What is refused, in which words, and that nothing is written then.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/parity.h"

namespace headwise {
namespace {

using testing::HasSubstr;

class Errors : public testing::Test {
 protected:
  // Both implementations refuse, in the same words, and leave `output` alone.
  void ExpectRefused(const NewtonSchulzCoefficients& coefficients,
                     const std::vector<NewtonSchulzProblem>& problems, const std::string& message) {
    ThreadPool pool(1);
    for (const absl::Status& status : {NewtonSchulz(coefficients, problems, pool),
                                       NewtonSchulzReference(coefficients, problems)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    }
    for (std::int64_t r = 0; r < output.rows(); ++r) {
      for (std::int64_t c = 0; c < output.width(); ++c) ASSERT_EQ(output.at(r, c), 7.0f);
    }
  }
  void ExpectRefused(const NewtonSchulzProblem& bad, const std::string& message) {
    ExpectRefused(Quintic5(), {problem, bad}, message);
    ExpectRefused(Quintic5(), {problem, bad}, "problem 1");
  }

  void SetUp() override {
    Fill(input, 1);
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 6; ++c) output.at(r, c) = 7.0f;
    }
  }

  FloatMatrix input{4, 6}, output{4, 6};
  HeadBlocks blocks = HeadBlocks::Whole(4);
  NewtonSchulzProblem problem = {input.view(), output.span(), &blocks};
};

TEST_F(Errors, Shapes) {
  NewtonSchulzProblem bad = problem;
  bad.output.width = 5;
  ExpectRefused(bad, "its input is [4, 6] but its output is [4, 5]");
  bad = problem;
  bad.input.rows = 0;
  ExpectRefused(bad, "its input must have at least one row and column, found [0, 6]");
  bad = problem;
  bad.input.data = nullptr;
  ExpectRefused(bad, "its input has no data");
  bad = problem;
  bad.output.stride = 5;
  ExpectRefused(bad, "its output has rows of 6 elements but 5 from one row to the next");
}

TEST_F(Errors, Blocks) {
  NewtonSchulzProblem bad = problem;
  bad.blocks = nullptr;
  ExpectRefused(bad, "it has no head blocks");
  const HeadBlocks five = HeadBlocks::Whole(5);
  bad.blocks = &five;
  ExpectRefused(bad, "its head blocks tile 5 rows but the matrix is [4, 6]");
  const HeadBlocks columns = BlocksOfSizes({2, 2}, BlockAxis::kColumns);
  bad.blocks = &columns;
  ExpectRefused(bad, "its head blocks tile 4 columns but the matrix is [4, 6]");
}

TEST_F(Errors, Overlap) {
  NewtonSchulzProblem bad = problem;
  bad.input = RowSpan<const float>(output.span().data, 2, 3, 6);
  bad.output = RowSpan<float>(output.span().data + 1, 2, 3, 6);
  const HeadBlocks two = HeadBlocks::Whole(2);
  bad.blocks = &two;
  ExpectRefused(bad, "its output overlaps its input without being the same matrix");
  bad.output = RowSpan<float>(output.span().data, 2, 3, 3);
  ExpectRefused(bad, "its output overlaps its input");
}

TEST_F(Errors, ColumnsOfOneBufferDoNotOverlap) {
  FloatMatrix both(4, 12);
  Fill(both, 2);
  const RowSpan<const float> left(both.span().data, 4, 6, 12);
  const RowSpan<float> right(both.span().data + 6, 4, 6, 12);
  const FloatMatrix before = both;
  ThreadPool pool(1);
  ASSERT_TRUE(NewtonSchulz(Quintic5(), {{{left, right, &blocks}}}, pool).ok());
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 6; ++c) EXPECT_EQ(both.at(r, c), before.at(r, c));
  }
}

TEST_F(Errors, Coefficients) {
  ExpectRefused({.name = "none", .steps = {}, .restarts_after = {}}, {problem},
                "'none': found no step, expected at least one");
  const QuinticStep step = {3.4445f, -4.775f, 2.0315f};
  for (const std::vector<int>& restarts :
       {std::vector<int>{0}, {3}, {2, 2}, {2, 1}, {-1}, {1, 2, 3}}) {
    ExpectRefused({.name = "list", .steps = {step, step, step}, .restarts_after = restarts},
                  {problem}, "expected ascending step numbers from 1 to 2");
  }
  ExpectRefused({.name = "nan",
                 .steps = {step, {1.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f}},
                 .restarts_after = {}},
                {problem}, "'nan': step 2 is not finite");
}

TEST_F(Errors, NoProblemsIsFine) {
  ThreadPool pool(2);
  EXPECT_TRUE(NewtonSchulz(Quintic5(), {}, pool).ok());
  EXPECT_TRUE(NewtonSchulzReference(Quintic5(), {}).ok());
}

}  // namespace
}  // namespace headwise
