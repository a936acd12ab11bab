// The norm's order of additions is the contract's whatever the threads and the listing; the guard
// sees every element.
#include "kernels/gradient_norm/gradient_norm.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"

namespace headwise {
namespace {

constexpr float kTwoTo96 = 0x1p96f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed) {
  TestMatrix<float> values(1, count);
  Fill(values, seed);
  return {values.view().data, values.view().data + count};
}

struct Gradient {
  std::string name;
  std::int64_t rows, width;
  std::vector<float> values;
};

// Odd sizes, one row, one column, more rows than one task takes, and nothing at all; not in name
// order.
std::vector<Gradient> SomeGradients() {
  std::vector<Gradient> gradients;
  std::uint64_t seed = 0;
  for (const auto& [name, rows, width] : {std::tuple("wqkv", 37, 129),
                                          {"norm", 1, 515},
                                          {"wo", 700, 131},
                                          {"column", 13, 1},
                                          {"b", 8, 8},
                                          {"empty", 0, 4}}) {
    gradients.push_back({name, rows, width, RandomValues(rows * width, ++seed)});
  }
  return gradients;
}

std::vector<NamedGradient> Views(const std::vector<Gradient>& gradients) {
  std::vector<NamedGradient> views;
  for (const Gradient& g : gradients) views.push_back({g.name, {g.values.data(), g.rows, g.width}});
  return views;
}

GradientSummary Summarize(const std::vector<Gradient>& gradients, int threads = 1) {
  ThreadPool pool(threads);
  return SummarizeGradients(Views(gradients), pool);
}

// Padded to a power of two with +0; every addition performed.
double TreeSum(std::vector<double> p) {
  p.resize(std::bit_ceil(std::max<std::size_t>(p.size(), 1)));
  while (p.size() > 1) {
    std::vector<double> next;
    for (std::size_t i = 0; i < p.size(); i += 2) next.push_back(p[i] + p[i + 1]);
    p = next;
  }
  return p[0];
}

// The definition, written down once more.
double NormByDefinition(std::vector<Gradient> gradients) {
  std::sort(gradients.begin(), gradients.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<double> parameters;
  for (const Gradient& g : gradients) {
    std::vector<double> rows;
    for (std::int64_t r = 0; r < g.rows; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < g.width; ++c) {
        const double x = g.values[r * g.width + c];
        sum += x * x;
      }
      rows.push_back(sum);
    }
    parameters.push_back(TreeSum(rows));
  }
  return std::sqrt(TreeSum(parameters));
}

TEST(SummarizeGradients, AddsInTheOrderOfTheContract) {
  const std::vector<Gradient> gradients = SomeGradients();
  EXPECT_EQ(Summarize(gradients).norm, NormByDefinition(gradients));
  EXPECT_EQ(Summarize(gradients).non_finite, "");
  // Not vacuous: the values are such that another order gives other bits.
  double plain = 0;
  for (const Gradient& g : gradients) {
    for (const float x : g.values) plain += static_cast<double>(x) * x;
  }
  EXPECT_NE(std::sqrt(plain), NormByDefinition(gradients));
  EXPECT_NEAR(std::sqrt(plain), NormByDefinition(gradients), 1e-9);
}

TEST(SummarizeGradients, SameBitsForAnyNumberOfThreads) {
  const std::vector<Gradient> gradients = SomeGradients();
  for (const int threads : {2, 3, 5})
    EXPECT_EQ(Summarize(gradients, threads).norm, Summarize(gradients).norm);
}

TEST(SummarizeGradients, TheTreeOverParametersIsInNameOrder) {
  // One square of 1 and four of 0.845 half ulps: what is lost depends on whom the 1 is added to
  // first.
  const float small = 1.3f * 0x1p-27f;
  const auto norm = [&](const std::vector<std::pair<std::string, float>>& elements) {
    std::vector<Gradient> gradients;
    for (const auto& [name, value] : elements) gradients.push_back({name, 1, 1, {value}});
    return Summarize(gradients).norm;
  };
  const double first = norm({{"a", 1}, {"b", small}, {"c", small}, {"d", small}, {"e", small}});
  const double last = norm({{"a", small}, {"b", small}, {"c", small}, {"d", small}, {"e", 1}});
  EXPECT_EQ(first, 1.0);
  EXPECT_EQ(last, 1.0 + 0x1p-52);
  EXPECT_EQ(norm({{"b", small}, {"e", small}, {"c", small}, {"d", small}, {"a", 1}}), first);
  EXPECT_EQ(norm({{"e", 1}, {"b", small}, {"c", small}, {"a", small}, {"d", small}}), last);
}

TEST(SummarizeGradients, StridedRowsAreRowsOfTheirWidth) {
  std::vector<float> dense = RandomValues(20 * 7, 3);
  std::vector<float> strided(20 * 11, kInfinity);  // what lies between rows must not be read
  for (int r = 0; r < 20; ++r) std::copy_n(dense.data() + r * 7, 7, strided.data() + r * 11);
  ThreadPool pool(1);
  const GradientSummary a = SummarizeGradients({{"w", {dense.data(), 20, 7}}}, pool);
  const GradientSummary b = SummarizeGradients({{"w", {strided.data(), 20, 7, 11}}}, pool);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(b.non_finite, "");
}

TEST(SummarizeGradients, NothingHasNormZero) {
  EXPECT_EQ(Summarize({}).norm, 0.0);
  EXPECT_EQ(Summarize({{"w", 2, 2, {0, -0.0f, 0, 0}}}).norm, 0.0);
}

TEST(SummarizeGradients, GuardSeesEveryElementAndEveryUnusableValue) {
  for (const float bad :
       {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity, kTwoTo96, -kTwoTo96}) {
    for (int at = 0; at < 11 * 3; ++at) {
      std::vector<Gradient> gradients = {{"w", 11, 3, RandomValues(33, 1)}};
      gradients[0].values[at] = bad;
      EXPECT_EQ(Summarize(gradients).non_finite, "w") << bad << " at " << at;
    }
  }
}

TEST(SummarizeGradients, GuardLetsTheLargestUsableValuePass) {
  const float largest = std::nextafter(kTwoTo96, 0.0f);
  const GradientSummary summary = Summarize({{"w", 1, 2, {largest, -largest}}});
  EXPECT_EQ(summary.non_finite, "");
  EXPECT_EQ(summary.norm, std::sqrt(2 * static_cast<double>(largest) * largest));
  EXPECT_EQ(Summarize({{"w", 1, 1, {std::numeric_limits<float>::denorm_min()}}}).norm, 0x1p-149);
}

TEST(SummarizeGradients, GuardNamesTheFirstParameterByName) {
  std::vector<Gradient> gradients = SomeGradients();
  gradients[0].values[5] = std::nanf("");                           // wqkv
  gradients[2].values[gradients[2].values.size() - 1] = kInfinity;  // wo
  for (const int threads : {1, 2, 3}) EXPECT_EQ(Summarize(gradients, threads).non_finite, "wo");
}

TEST(ClipFactor, BringsTheNormDownAndNeverUp) {
  EXPECT_EQ(ClipFactor(4.0, 1.0), 0.25);
  EXPECT_EQ(ClipFactor(1.0, 1.0), 1.0);
  EXPECT_EQ(ClipFactor(0.5, 1.0), 1.0);
  EXPECT_EQ(ClipFactor(0.0, 1.0), 1.0);
  EXPECT_EQ(ClipFactor(1e20, 0.0), 1.0);  // 0: no clipping
}

}  // namespace
}  // namespace headwise
