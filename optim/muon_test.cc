// Muon is the kernel's reference step on every weight, whatever the threads, the company and the
// storage; an unusable gradient changes nothing; bad input is named.
#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

constexpr std::int64_t kColumns = 40;

MuonHyperparameters TestHyper() {
  return {.learning_rate = 0.02, .momentum = 0.9, .weight_decay = 0.1};
}

HeadBlocks TestHeads() { return HeadBlocks::FromPacked(*PackedQkv::Interleaved({4, 2, 6})); }

// A weight and its gradient, [rows, columns].
struct Buffers {
  std::string name;
  std::int64_t rows, columns;
  std::optional<HeadBlocks> blocks;
  std::vector<float> value, gradient, momentum;

  Buffers(std::string name, std::int64_t rows, std::int64_t columns,
          std::optional<HeadBlocks> blocks, int seed)
      : name(std::move(name)),
        rows(rows),
        columns(columns),
        blocks(std::move(blocks)),
        value(RandomValues(rows * columns, 100 + seed)),
        gradient(RandomValues(rows * columns, 200 + seed)),
        momentum(static_cast<std::size_t>(rows * columns)) {}

  MuonParameter parameter() {
    return {.name = name,
            .value = {value.data(), rows, columns},
            .gradient = {gradient.data(), rows, columns},
            .blocks = blocks};
  }
  // In place: a Muon keeps the address.
  void NextGradient(int step) {
    const std::vector<float> next = RandomValues(rows * columns, 1000 * step + rows);
    std::copy(next.begin(), next.end(), gradient.begin());
  }
};

// Per head, wide, tall; not in name order.
std::vector<Buffers> SomeWeights() {
  return {{"wqkv", 48, kColumns, TestHeads(), 1},
          {"wo", 17, 33, std::nullopt, 2},
          {"w1", 33, 17, std::nullopt, 3}};
}

std::vector<MuonParameter> Parameters(std::vector<Buffers>& weights) {
  std::vector<MuonParameter> parameters;
  parameters.reserve(weights.size());
  for (Buffers& w : weights) parameters.push_back(w.parameter());
  return parameters;
}

Muon MakeMuon(std::vector<Buffers>& weights, const MuonHyperparameters& hyper = TestHyper()) {
  absl::StatusOr<Muon> muon = Muon::Create(hyper, Parameters(weights));
  EXPECT_TRUE(muon.ok()) << muon.status();
  return *std::move(muon);
}

std::map<std::string, std::vector<float>> ValuesByName(const std::vector<Buffers>& weights) {
  std::map<std::string, std::vector<float>> values;
  for (const Buffers& w : weights) values[w.name] = w.value;
  return values;
}

TEST(Muon, IsTheReferenceStepOnEveryWeight) {
  for (const bool nesterov : {true, false}) {
    MuonHyperparameters hyper = TestHyper();
    hyper.nesterov = nesterov;
    std::vector<Buffers> weights = SomeWeights(), expected = SomeWeights();
    Muon muon = MakeMuon(weights, hyper);
    ThreadPool pool(2);
    for (int step = 1; step <= 3; ++step) {
      const double factor = 1.0 / step;
      MuonHyperparameters at_step = hyper;
      at_step.learning_rate = hyper.learning_rate * factor;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i].NextGradient(step);
        Buffers& e = expected[i];
        e.NextGradient(step);
        const HeadBlocks blocks = e.blocks.value_or(HeadBlocks::Whole(e.rows));
        const MuonWeight<float> weight = {.weight = {e.value.data(), e.rows, e.columns},
                                          .momentum = {e.momentum.data(), e.rows, e.columns},
                                          .gradient = {e.gradient.data(), e.rows, e.columns},
                                          .blocks = &blocks};
        ASSERT_TRUE(MuonStepReference<float>(at_step, {weight}).ok());
      }
      EXPECT_FALSE(muon.Step(pool, factor).skipped);
      EXPECT_EQ(ValuesByName(weights), ValuesByName(expected)) << "step " << step;
    }
    for (const NamedTensor& state : muon.State()) {
      const auto e = std::find_if(expected.begin(), expected.end(), [&](const Buffers& b) {
        return "momentum/" + b.name == state.name;
      });
      ASSERT_NE(e, expected.end()) << state.name;
      EXPECT_EQ(state.tensor.shape(), (Shape{e->rows, e->columns}));
      EXPECT_TRUE(std::equal(e->momentum.begin(), e->momentum.end(), state.tensor.data<float>()))
          << state.name;
    }
  }
}

TEST(Muon, SameBitsForAnyThreadsCompanyAndOrder) {
  std::vector<Buffers> together = SomeWeights();
  Muon muon = MakeMuon(together);
  ThreadPool one(1);
  muon.Step(one);
  muon.Step(one);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::vector<Buffers> reversed = SomeWeights();
    std::reverse(reversed.begin(), reversed.end());
    Muon other = MakeMuon(reversed);
    other.Step(pool);
    other.Step(pool);
    EXPECT_EQ(ValuesByName(reversed), ValuesByName(together)) << threads << " threads";
    for (const Buffers& w : SomeWeights()) {
      std::vector<Buffers> alone = {w};
      Muon single = MakeMuon(alone);
      single.Step(pool);
      single.Step(pool);
      EXPECT_EQ(alone[0].value, ValuesByName(together)[w.name]) << w.name;
    }
  }
}

TEST(Muon, StridedRowsGiveTheSameBitsAndNothingBetweenThemIsTouched) {
  std::vector<Buffers> dense = {{"w", 12, 20, std::nullopt, 1}};
  std::vector<float> value(12 * 23, -7.0f), gradient(12 * 29, std::nanf(""));
  for (int r = 0; r < 12; ++r) {
    std::copy_n(dense[0].value.data() + r * 20, 20, value.data() + r * 23);
    std::copy_n(dense[0].gradient.data() + r * 20, 20, gradient.data() + r * 29);
  }
  ThreadPool pool(1);
  MakeMuon(dense).Step(pool);
  absl::StatusOr<Muon> strided =
      Muon::Create(TestHyper(), {{.name = "w",
                                  .value = {value.data(), 12, 20, 23},
                                  .gradient = {gradient.data(), 12, 20, 29}}});
  ASSERT_TRUE(strided.ok()) << strided.status();
  EXPECT_FALSE(strided->Step(pool).skipped);
  for (int i = 0; i < 12 * 23; ++i) {
    const int r = i / 23, c = i % 23;
    EXPECT_EQ(value[i], c < 20 ? dense[0].value[r * 20 + c] : -7.0f) << i;
  }
}

TEST(Muon, TransposedStorageGivesTheTransposedUpdate) {
  for (const UpdateScale scale : {UpdateScale::kAspect, UpdateScale::kSpectral}) {
    MuonHyperparameters hyper = TestHyper();
    hyper.scale = scale;
    std::vector<Buffers> stored = {{"wqkv", 48, kColumns, TestHeads(), 1}};
    std::vector<HeadBlock> columns = TestHeads().blocks();
    std::vector<float> value(48 * kColumns), gradient(48 * kColumns);  // [in, out]
    for (int r = 0; r < 48; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        value[c * 48 + r] = stored[0].value[r * kColumns + c];
        gradient[c * 48 + r] = stored[0].gradient[r * kColumns + c];
      }
    }
    absl::StatusOr<Muon> transposed =
        Muon::Create(hyper, {{.name = "wqkv",
                              .value = {value.data(), kColumns, 48},
                              .gradient = {gradient.data(), kColumns, 48},
                              .blocks = *HeadBlocks::Create(48, columns, BlockAxis::kColumns),
                              .transposed_storage = true}});
    ASSERT_TRUE(transposed.ok()) << transposed.status();
    ThreadPool pool(2);
    MakeMuon(stored, hyper).Step(pool);
    transposed->Step(pool);
    for (int r = 0; r < 48; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        ASSERT_EQ(value[c * 48 + r], stored[0].value[r * kColumns + c])
            << r << ", " << c << " " << Name(scale);
      }
    }
  }
}

TEST(Muon, GradientScaleIsTheReferencesToo) {
  std::vector<Buffers> weights = SomeWeights(), expected = SomeWeights();
  ThreadPool pool(2);
  MakeMuon(weights).StepUnguarded(pool, 1.0, 0.3);
  MuonHyperparameters hyper = TestHyper();
  hyper.gradient_scale = 0.3;
  for (Buffers& e : expected) {
    const HeadBlocks blocks = e.blocks.value_or(HeadBlocks::Whole(e.rows));
    const MuonWeight<float> weight = {.weight = {e.value.data(), e.rows, e.columns},
                                      .momentum = {e.momentum.data(), e.rows, e.columns},
                                      .gradient = {e.gradient.data(), e.rows, e.columns},
                                      .blocks = &blocks};
    ASSERT_TRUE(MuonStepReference<float>(hyper, {weight}).ok());
  }
  EXPECT_EQ(ValuesByName(weights), ValuesByName(expected));
}

TEST(Muon, GradientScaleIsOneMultiplicationOfEveryGradient) {
  std::vector<Buffers> scaled = SomeWeights(), multiplied = SomeWeights();
  const double scale = 0.3;
  for (Buffers& w : multiplied) {
    for (float& g : w.gradient) g *= static_cast<float>(scale);
  }
  ThreadPool pool(2);
  Muon a = MakeMuon(scaled), b = MakeMuon(multiplied);
  a.StepUnguarded(pool, 1.0, scale);
  b.StepUnguarded(pool, 1.0);
  EXPECT_EQ(ValuesByName(scaled), ValuesByName(multiplied));
  for (std::size_t i = 0; i < a.State().size(); ++i) {
    const Tensor m = a.State()[i].tensor, n = b.State()[i].tensor;
    EXPECT_TRUE(std::equal(m.data<float>(), m.data<float>() + m.size(), n.data<float>()));
  }
}

TEST(Muon, AnUnusableGradientChangesNothingAndIsNamed) {
  ThreadPool pool(2);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -0x1p96f}) {
    std::vector<Buffers> weights = SomeWeights();
    Muon muon = MakeMuon(weights);
    muon.Step(pool);
    const auto values = ValuesByName(weights);
    std::vector<Tensor> momentum;
    for (const NamedTensor& state : muon.State()) momentum.push_back(state.tensor.Clone());

    const float good = std::exchange(weights[0].gradient[77], bad);
    const MuonReport report = muon.Step(pool);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.non_finite, "wqkv");
    EXPECT_EQ(ValuesByName(weights), values);
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      const Tensor now = muon.State()[i].tensor;
      EXPECT_TRUE(
          std::equal(now.data<float>(), now.data<float>() + now.size(), momentum[i].data<float>()));
    }

    weights[0].gradient[77] = good;
    EXPECT_FALSE(muon.Step(pool).skipped);
    EXPECT_NE(ValuesByName(weights), values);
  }
}

TEST(Muon, StateResumesWithTheSameBits) {
  ThreadPool pool(2);
  std::vector<Buffers> whole = SomeWeights();
  Muon uninterrupted = MakeMuon(whole);
  std::vector<Buffers> first = SomeWeights();
  Muon before = MakeMuon(first);
  for (int step = 0; step < 2; ++step) {
    uninterrupted.Step(pool);
    before.Step(pool);
  }
  std::vector<Buffers> second = first;
  Muon after = MakeMuon(second);
  for (std::size_t i = 0; i < before.State().size(); ++i) {
    const NamedTensor from = before.State()[i], to = after.State()[i];
    ASSERT_EQ(from.name, to.name);
    std::copy_n(from.tensor.data<float>(), from.tensor.size(), to.tensor.data<float>());
  }
  uninterrupted.Step(pool);
  after.Step(pool);
  EXPECT_EQ(ValuesByName(second), ValuesByName(whole));
}

TEST(Muon, LearningRateZeroMovesTheMomentumOnly) {
  std::vector<Buffers> weights = SomeWeights();
  const auto values = ValuesByName(weights);
  MuonHyperparameters hyper = TestHyper();
  hyper.learning_rate = 0;
  Muon muon = MakeMuon(weights, hyper);
  ThreadPool pool(1);
  EXPECT_GT(muon.Step(pool).gradient_norm, 0);
  EXPECT_EQ(ValuesByName(weights), values);
  EXPECT_NE(muon.State()[0].tensor.data<float>()[0], 0.0f);
}

TEST(Muon, WithoutWeightsThereIsNothingToDo) {
  absl::StatusOr<Muon> muon = Muon::Create(TestHyper(), {});
  ASSERT_TRUE(muon.ok());
  ThreadPool pool(1);
  EXPECT_FALSE(muon->Step(pool).skipped);
  EXPECT_TRUE(muon->State().empty());
}

std::string Error(const MuonHyperparameters& hyper, std::vector<MuonParameter> parameters = {}) {
  const absl::Status status = Muon::Create(hyper, std::move(parameters)).status();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(MuonErrors, NameTheHyperparameterItsRangeAndItsValue) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Error({.learning_rate = -0.1}),
            "learning_rate must be finite and 0 or more, found -0.1");
  EXPECT_EQ(Error({.learning_rate = nan}), "learning_rate must be finite and 0 or more, found nan");
  EXPECT_EQ(Error({.learning_rate = infinity}),
            "learning_rate must be finite and 0 or more, found inf");
  EXPECT_EQ(Error({.learning_rate = 1e39}),
            "learning_rate must be finite and 0 or more, found 1e+39");
  EXPECT_EQ(Error({.momentum = 1}), "momentum must be in [0, 1), found 1");
  EXPECT_EQ(Error({.momentum = -0.5}), "momentum must be in [0, 1), found -0.5");
  EXPECT_EQ(Error({.momentum = nan}), "momentum must be in [0, 1), found nan");
  EXPECT_NE(Error({.momentum = 1 - 1e-12}), "") << "rounds to 1 in fp32";
  EXPECT_EQ(Error({.weight_decay = -1}), "weight_decay must be finite and 0 or more, found -1");
  EXPECT_EQ(Error({.learning_rate = 0.5, .weight_decay = 3}),
            "weight_decay must be at most 1 / learning_rate, found 3");
  EXPECT_EQ(Error({.gradient_scale = 0.5}),
            "gradient_scale must be 1 (it is an argument of the step), found 0.5");
  EXPECT_EQ(Error({.learning_rate = 0, .momentum = 0, .weight_decay = 0}), "");
}

TEST(MuonErrors, NameTheCoefficients) {
  EXPECT_EQ(Error({.coefficients = nullptr}), "coefficients must not be null");
  NewtonSchulzCoefficients mine = {.name = "mine", .steps = {{1, 2, 3}}, .restarts_after = {}};
  EXPECT_EQ(Error({.coefficients = &mine}), "");
  mine.steps[0].b = std::nanf("");
  EXPECT_NE(Error({.coefficients = &mine}).find("mine"), std::string::npos);
  mine.steps.clear();
  EXPECT_NE(Error({.coefficients = &mine}).find("mine"), std::string::npos);
}

TEST(MuonErrors, NameTheWeightAndTheMismatch) {
  std::vector<float> value(6 * 4), gradient(6 * 4);
  const MuonParameter good = {
      .name = "w", .value = {value.data(), 6, 4}, .gradient = {gradient.data(), 6, 4}};
  const auto with = [&](auto change) {
    MuonParameter parameter = good;
    change(parameter);
    return Error(TestHyper(), {parameter});
  };
  EXPECT_EQ(with([](MuonParameter&) {}), "");
  EXPECT_EQ(Error(TestHyper(), {good, good}), "two weights are named w");
  EXPECT_EQ(with([](MuonParameter& p) { p.name = ""; }), "a weight has no name");
  EXPECT_EQ(with([](MuonParameter& p) { p.value.data = nullptr; }),
            "weight w: value is a null pointer");
  EXPECT_EQ(with([](MuonParameter& p) { p.gradient.data = nullptr; }),
            "weight w: gradient is a null pointer");
  EXPECT_EQ(with([](MuonParameter& p) { p.value.rows = 0; }),
            "weight w: value must have elements, found shape [0, 4]");
  EXPECT_EQ(with([](MuonParameter& p) { p.value.stride = 3; }),
            "weight w: value has rows of 4 elements that lie only 3 apart");
  EXPECT_EQ(with([](MuonParameter& p) { p.gradient.rows = 5; }),
            "weight w: value has shape [6, 4], gradient [5, 4]");
  EXPECT_EQ(with([](MuonParameter& p) { p.blocks = HeadBlocks::Whole(5); }),
            "weight w: the blocks cover 5 rows, the value has shape [6, 4]");
  EXPECT_EQ(with([](MuonParameter& p) {
              p.blocks = *HeadBlocks::Create(6, {{{{0, 6}}}}, BlockAxis::kColumns);
            }),
            "weight w: the blocks cover 6 columns, the value has shape [6, 4]");
}

TEST(MuonErrors, NameBuffersThatShareMemory) {
  std::vector<float> a(6 * 4), b(6 * 4), gradient(6 * 4);
  const auto parameter = [&](const char* name, std::vector<float>& value,
                             std::vector<float>& grad) -> MuonParameter {
    return {.name = name, .value = {value.data(), 6, 4}, .gradient = {grad.data(), 6, 4}};
  };
  EXPECT_EQ(Error(TestHyper(), {parameter("w", a, a)}),
            "the value of weight w and the gradient of weight w share memory");
  EXPECT_EQ(Error(TestHyper(), {parameter("v", a, gradient), parameter("w", b, a)}),
            "the value of weight v and the gradient of weight w share memory");
  EXPECT_EQ(Error(TestHyper(), {parameter("v", a, gradient), parameter("w", a, gradient)}),
            "weights v and w share memory");
  // Gradients are only read.
  EXPECT_EQ(Error(TestHyper(), {parameter("v", a, gradient), parameter("w", b, gradient)}), "");
  // Columns of one buffer, [0, 3) and [3, 5) of 8 with the gradients behind them; or from 2 on.
  std::vector<float> buffer(6 * 8);
  const auto columns = [&](const char* name, std::int64_t begin,
                           std::int64_t width) -> MuonParameter {
    return {.name = name,
            .value = {buffer.data() + begin, 6, width, 8},
            .gradient = {buffer.data() + 5, 6, width, 8}};
  };
  EXPECT_EQ(Error(TestHyper(), {columns("v", 0, 3), columns("w", 3, 2)}), "");
  EXPECT_EQ(Error(TestHyper(), {columns("v", 0, 3), columns("w", 2, 2)}),
            "weights v and w share memory");
  EXPECT_EQ(Error(TestHyper(), {columns("v", 0, 3), columns("w", 4, 2)}),
            "the value of weight w and the gradient of weight v share memory");
}

TEST(MuonDeathTest, AFactorThatIsNoFactorIsAProgrammingError) {
  absl::StatusOr<Muon> muon = Muon::Create(TestHyper(), {});
  ThreadPool pool(1);
  EXPECT_DEATH(muon->Step(pool, -1.0), "learning_rate_factor");
  EXPECT_DEATH(muon->Step(pool, std::nan("")), "learning_rate_factor");
  EXPECT_DEATH(muon->StepUnguarded(pool, 1.0, 2.0), "gradient_scale");
}

}  // namespace
}  // namespace headwise
