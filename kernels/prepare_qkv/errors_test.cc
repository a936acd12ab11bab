// Every wrong argument is refused by name, by the dispatcher and by the reference alike, and
// nothing is written.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/reference.h"
#include "kernels/prepare_qkv/test_problem.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace headwise {
namespace {

using testing::HasSubstr;

// The arguments of both directions, to be spoilt.
struct Arguments {
  QkvPreparation op;
  QkvInputs<float> in;
  QkvOutputs<float> out;
  QkvGradients<float> d;
  PackedGradients<float> gradients;
};

class Errors : public testing::Test {
 protected:
  explicit Errors(const Shape& shape = {.tokens = 4})
      : problem_(shape),
        results_(problem_.MakeResults()),
        good_{problem_.op(), problem_.inputs(), Problem<float>::Outputs(results_),
              problem_.gradients(), problem_.Gradients(results_)} {}

  static constexpr bool kForward = true, kBackward = false;

  // Runs one direction of both implementations.
  void ExpectError(bool forward, const std::function<void(Arguments&)>& spoil,
                   absl::StatusCode code, const std::vector<std::string>& words) {
    Arguments a = good_;
    spoil(a);
    const absl::Status status =
        forward ? PrepareQkv<float>(a.op, a.in, a.out, pool_)
                : PrepareQkvBackward<float>(a.op, a.in, a.d, a.gradients, pool_);
    const absl::Status reference =
        forward ? PrepareQkvReference<float>(a.op, a.in, a.out)
                : PrepareQkvBackwardReference<float>(a.op, a.in, a.d, a.gradients);
    EXPECT_EQ(status, reference);
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status;
    EXPECT_TRUE(Untouched(results_)) << status;
  }

  void ExpectBothRefuse(const std::function<void(Arguments&)>& spoil,
                        const std::vector<std::string>& words,
                        absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    ExpectError(kForward, spoil, code, words);
    ExpectError(kBackward, spoil, code, words);
  }
  void ExpectForwardRefuses(const std::function<void(Arguments&)>& spoil,
                            const std::vector<std::string>& words) {
    ExpectError(kForward, spoil, absl::StatusCode::kInvalidArgument, words);
  }
  void ExpectBackwardRefuses(const std::function<void(Arguments&)>& spoil,
                             const std::vector<std::string>& words) {
    ExpectError(kBackward, spoil, absl::StatusCode::kInvalidArgument, words);
  }

  Problem<float> problem_;
  Results<float> results_;
  Arguments good_;
  ThreadPool pool_{2};
};

TEST_F(Errors, GoodArgumentsAreTaken) {
  EXPECT_TRUE(PrepareQkv<float>(good_.op, good_.in, good_.out, pool_).ok());
  EXPECT_TRUE(PrepareQkvBackward<float>(good_.op, good_.in, good_.d, good_.gradients, pool_).ok());
  EXPECT_FALSE(Untouched(results_));
}

TEST_F(Errors, Choices) {
  ExpectBothRefuse(
      [](Arguments& a) {
        a.op.layout = *PackedQkv::Interleaved({6, 2, 63});
      },
      {"head_dim 63", "even"});
  ExpectBothRefuse(
      [](Arguments& a) {
        a.op.layout = *PackedQkv::Interleaved({6, 2, 514});
      },
      {"head_dim 514", "512"});
  for (const float epsilon : {-1e-6f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    ExpectBothRefuse([&](Arguments& a) { a.op.epsilon = epsilon; }, {"epsilon", "finite"});
  }
  ExpectBothRefuse([](Arguments& a) { a.op.query_scale = std::nanf(""); },
                   {"query_scale", "finite"});
  ExpectBothRefuse(
      [](Arguments& a) {
        a.op.norm = HeadNorm::kNone;
        a.op.query_scale = 0.5f;
      },
      {"query_scale", "0.5", "kNone"});
}

TEST_F(Errors, PackedShape) {
  ExpectBothRefuse([](Arguments& a) { a.in.packed.rows = -1; }, {"packed", "-1"});
  ExpectBothRefuse([](Arguments& a) { a.in.packed.width -= 1; },
                   {"packed", "[4, 639]", "[4, 640]", "(H + 2 G) D"});
  ExpectBothRefuse([](Arguments& a) { a.in.packed.stride = 100; }, {"packed", "stride 100"});
  ExpectBothRefuse([](Arguments& a) { a.in.packed.data = nullptr; }, {"packed", "null"});
  ExpectBothRefuse([](Arguments& a) { a.in.packed.stride = std::int64_t{1} << 61; },
                   {"packed", "64-bit"});
}

TEST_F(Errors, OutputShapes) {
  ExpectForwardRefuses([](Arguments& a) { a.out.q.rows = 5; }, {"q:", "[5, 384]", "[4, 384]"});
  ExpectForwardRefuses([](Arguments& a) { a.out.q.stride = 1; }, {"q:", "stride"});
  ExpectForwardRefuses([](Arguments& a) { a.out.k.width = 64; }, {"k:", "[4, 64]", "[4, 128]"});
  ExpectForwardRefuses([](Arguments& a) { a.out.k.data = nullptr; }, {"k:", "null"});
  ExpectForwardRefuses([](Arguments& a) { a.out.v.rows = 3; }, {"v:", "[3, 128]"});
  ExpectBackwardRefuses([](Arguments& a) { a.d.dq.width = 64; }, {"dq:", "[4, 384]"});
  ExpectBackwardRefuses([](Arguments& a) { a.d.dk.rows = 0; }, {"dk:", "[0, 128]"});
  ExpectBackwardRefuses([](Arguments& a) { a.d.dv.data = nullptr; }, {"dv:", "null"});
  ExpectBackwardRefuses([](Arguments& a) { a.gradients.dpacked.rows = 3; },
                        {"dpacked:", "[3, 640]"});
}

TEST_F(Errors, Weights) {
  ExpectBothRefuse([](Arguments& a) { a.in.q_weight = {}; }, {"q_weight", "found 0", "64"});
  ExpectBothRefuse([](Arguments& a) { a.in.k_weight = a.in.k_weight.subspan(1); },
                   {"k_weight", "63", "64"});
  ExpectBothRefuse([](Arguments& a) { a.op.norm = HeadNorm::kScaleless; },
                   {"q_weight", "found 64", "no weight"});
  ExpectBackwardRefuses([](Arguments& a) { a.gradients.dq_weight_per_group = {}; },
                        {"dq_weight_per_group", "[0, 0]", "[2, 64]"});
  ExpectBackwardRefuses([](Arguments& a) { a.gradients.dk_weight_per_group.width = 63; },
                        {"dk_weight_per_group", "[2, 63]", "[G, D]"});
  ExpectBackwardRefuses(
      [](Arguments& a) {
        a.op.norm = HeadNorm::kScaleless;
        a.in.q_weight = a.in.k_weight = {};
      },
      {"dq_weight_per_group", "no weight"});
}

TEST_F(Errors, RotaryTable) {
  const RotaryTable wide = *RotaryTable::Create({.length = 97, .rotary_dim = 66});
  ExpectBothRefuse([&](Arguments& a) { a.op.rotary = &wide; }, {"rotary_dim 66", "head_dim 64"});
  ExpectBothRefuse([](Arguments& a) { a.in.positions = a.in.positions.subspan(1); },
                   {"positions", "found 3", "4 tokens"});
  ExpectBothRefuse([](Arguments& a) { a.in.positions = {}; }, {"positions", "found 0"});
}

TEST_F(Errors, PositionsNameTheToken) {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{97}, std::int64_t{1} << 40}) {
    const std::vector<std::int64_t> positions = {0, 96, bad, -7};
    ExpectBothRefuse([&](Arguments& a) { a.in.positions = positions; },
                     {"token 2", std::to_string(bad), "97"}, absl::StatusCode::kOutOfRange);
  }
}

TEST_F(Errors, Overlap) {
  const auto writable = [](RowSpan<const float> rows) {
    return RowSpan<float>(const_cast<float*>(rows.data), rows.rows, rows.width, rows.stride);
  };
  ExpectForwardRefuses(
      [&](Arguments& a) {
        a.out.q.data = writable(a.in.packed).data + a.in.packed.width;
        a.out.q.stride = a.in.packed.stride;
      },
      {"q overlaps packed"});
  ExpectForwardRefuses([](Arguments& a) { a.out.v.data = a.out.k.data + 4 * 128 - 1; },
                       {"k overlaps v"});
  ExpectForwardRefuses(
      [](Arguments& a) { a.out.k.data = const_cast<float*>(a.in.k_weight.data()); },
      {"k overlaps k_weight"});
  ExpectBackwardRefuses([&](Arguments& a) { a.gradients.dpacked = writable(a.in.packed); },
                        {"dpacked overlaps packed"});
  ExpectBackwardRefuses([&](Arguments& a) { a.gradients.dpacked.data = writable(a.d.dv).data; },
                        {"dpacked overlaps dv"});
  ExpectBackwardRefuses(
      [](Arguments& a) { a.gradients.dk_weight_per_group = a.gradients.dq_weight_per_group; },
      {"dq_weight_per_group overlaps dk_weight_per_group"});
  // Rows of different strides that meet only in the third.
  ExpectForwardRefuses(
      [](Arguments& a) {
        a.out.k.stride = 150;
        a.out.v.data = a.out.k.data + 128;
        a.out.v.stride = 200;
        a.out.v.width = 128;
      },
      {"k overlaps v"});
}

// q, k and v as columns of one matrix: strided rows that lie between each other.
TEST(Overlap, ColumnsOfOneMatrixDoNot) {
  ThreadPool pool(1);
  const Problem<float> problem({.tokens = 4});
  const Results<float> expected = problem.RunReference();
  std::vector<float> all(4 * 640);
  const QkvOutputs<float> out{RowSpan<float>(all.data(), 4, 384, 640),
                              RowSpan<float>(all.data() + 384, 4, 128, 640),
                              RowSpan<float>(all.data() + 512, 4, 128, 640)};
  const absl::Status status = PrepareQkv<float>(problem.op(), problem.inputs(), out, pool);
  ASSERT_TRUE(status.ok()) << status;
  for (std::int64_t t = 0; t < 4; ++t) {
    EXPECT_EQ(std::memcmp(out.q.row(t), expected.q.span().row(t), 384 * 4), 0);
    EXPECT_EQ(std::memcmp(out.v.row(t), expected.v.span().row(t), 128 * 4), 0);
  }
}

#if defined(__SSE__)
TEST_F(Errors, FlushedSubnormals) {
  for (const unsigned bit : {0x8000u, 0x0040u}) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | bit);
    ExpectBothRefuse([](Arguments&) {}, {"subnormal", "FTZ"},
                     absl::StatusCode::kFailedPrecondition);
    _mm_setcsr(saved);
  }
}
#endif

}  // namespace
}  // namespace headwise
