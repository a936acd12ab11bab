// What the CUDA launchers refuse, and that nothing is launched or written then.
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/prepare_qkv/emulated_problem.h"

namespace headwise {
namespace {

using testing::HasSubstr;

struct Call {
  QkvPreparation op;
  QkvInputs<float> in;
  QkvOutputs<float> out;
  QkvGradients<float> d;
  PackedGradients<float> gradients;
  QkvLaunch launch;
};

class EmulatedErrors : public testing::Test {
 protected:
  // Forward and backward of a right call that `change` has made wrong.
  void ExpectBoth(absl::StatusCode code, const std::string& words,
                  const std::function<void(Call&)>& change) {
    Expect(code, words, change, /*backward=*/false);
    Expect(code, words, change, /*backward=*/true);
  }
  void Expect(absl::StatusCode code, const std::string& words,
              const std::function<void(Call&)>& change, bool backward) {
    const Problem<float> problem({.tokens = 3, .head_dim = 64});
    const Results<float> results = problem.MakeResults();
    LaunchMemory memory(problem.op(), problem.inputs().positions, 3, device_positions_);
    Call call = {problem.op(),        problem.inputs(),           Problem<float>::Outputs(results),
                 problem.gradients(), problem.Gradients(results), memory.launch()};
    if (device_positions_) call.in.positions = {};
    change(call);
    emulation::Session session;
    const absl::Status status =
        backward ? cuda_emulated::PrepareQkvBackward<float>(call.op, call.in, call.d,
                                                            call.gradients, call.launch)
                 : cuda_emulated::PrepareQkv<float>(call.op, call.in, call.out, call.launch);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_EQ(session.launches().size(), 0);
    EXPECT_TRUE(Untouched(results));
  }

  bool device_positions_ = false;
};

TEST_F(EmulatedErrors, ARightCallIsAccepted) {
  for (const bool device : {false, true}) {
    const Problem<float> problem({.tokens = 3, .head_dim = 64});
    EXPECT_TRUE(RunEmulated(problem, {}, device).ok());
  }
}

TEST_F(EmulatedErrors, MissingMembersOfLaunchAreNamed) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectBoth(kInvalid, "launch.cos: found a null pointer", [](Call& c) { c.launch.cos = nullptr; });
  ExpectBoth(kInvalid, "launch.sin: found a null pointer", [](Call& c) { c.launch.sin = nullptr; });
  ExpectBoth(kInvalid, "launch.positions: found a null pointer, expected device memory for a copy",
             [](Call& c) { c.launch.positions = nullptr; });
  Expect(
      kInvalid,
      "launch.weight_gradient_scratch: found a null pointer, expected device memory "
      "for 256 floats",
      [](Call& c) { c.launch.weight_gradient_scratch = nullptr; }, /*backward=*/true);
  device_positions_ = true;
  ExpectBoth(kInvalid, "launch.positions: found a null pointer, expected device memory for the",
             [](Call& c) { c.launch.positions = nullptr; });
  ExpectBoth(kInvalid, "launch.first_bad_token: found a null pointer",
             [](Call& c) { c.launch.first_bad_token = nullptr; });
}

TEST_F(EmulatedErrors, TheContractsErrorsAreThoseOfTheReference) {
  ExpectBoth(absl::StatusCode::kInvalidArgument, "epsilon: found -1",
             [](Call& c) { c.op.epsilon = -1; });
  ExpectBoth(absl::StatusCode::kInvalidArgument, "q_weight: found 0 values, expected 64",
             [](Call& c) { c.in.q_weight = {}; });
  static constexpr std::int64_t kPositions[] = {0, 97, 3};
  ExpectBoth(absl::StatusCode::kOutOfRange, "token 1 has position 97",
             [](Call& c) { c.in.positions = kPositions; });
}

// Tokens past any grid. No memory is behind them; nothing looks.
TEST_F(EmulatedErrors, AGridThatIsTooLarge) {
  Call call = {
      .op = {.layout = *PackedQkv::Sectioned({.query_heads = 2, .kv_heads = 1, .head_dim = 64})}};
  const std::int64_t tokens = std::int64_t{1} << 35;
  const auto rows = [&](std::int64_t begin, std::int64_t width) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): no memory is behind it
    return RowSpan<float>(reinterpret_cast<float*>(begin << 50), tokens, width);
  };
  call.in.packed = rows(1, 4 * 64);
  call.out = {rows(2, 2 * 64), rows(3, 64), rows(4, 64)};
  const absl::Status status =
      cuda_emulated::PrepareQkv<float>(call.op, call.in, call.out, call.launch);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("split the call"));
}

TEST_F(EmulatedErrors, AGroupThatIsTooLarge) {
  const Problem<float> problem({.tokens = 1, .kv_heads = 1, .group_size = 2049, .head_dim = 2});
  const auto result = RunEmulated(problem, {}, false);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("found 2049 query heads a kv group"));
}

TEST_F(EmulatedErrors, ScratchOfItsOwn) {
  Expect(
      absl::StatusCode::kInvalidArgument, "weight_gradient_scratch overlaps dpacked",
      [](Call& c) { c.launch.weight_gradient_scratch = c.gradients.dpacked.data; },
      /*backward=*/true);
}

TEST_F(EmulatedErrors, ReduceHeadNormGradientWantsTheWidthAndMemory) {
  float values[8] = {}, out[3];
  EXPECT_EQ(cuda_emulated::ReduceHeadNormGradient(RowSpan<const float>(values, 2, 4),
                                                  absl::MakeSpan(out), nullptr)
                .code(),
            absl::StatusCode::kInvalidArgument);
  float right[4];
  for (const RowSpan<const float>& rows :
       {RowSpan<const float>{nullptr, 2, 4, 4}, RowSpan<const float>{values, -1, 4, 4},
        RowSpan<const float>{values, 2, 4, 3}}) {
    EXPECT_EQ(cuda_emulated::ReduceHeadNormGradient(rows, absl::MakeSpan(right), nullptr).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace headwise
