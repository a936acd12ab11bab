// The backward pass is the derivative of the forward pass: the whole decoder in double precision
// against central differences.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/random.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

constexpr double kLossScale = 0.25;
constexpr int kSampledElements = 3;

// The derivative of the scaled loss along `direction` in one parameter, by differences of fourth
// order.
double Difference(Decoder& decoder, const TokenBatch& batch, const Parameter& parameter,
                  const std::vector<double>& direction, ThreadPool& pool) {
  double* x = parameter.value.data<double>();
  const std::vector<double> saved(x, x + parameter.value.size());
  const auto loss_at = [&](double step) {
    for (std::size_t i = 0; i < saved.size(); ++i) x[i] = saved[i] + step * direction[i];
    decoder.WeightsChanged(pool);
    const double loss = decoder.Loss(batch, pool);
    return kLossScale * (loss + decoder.auxiliary_loss());
  };
  // Clamps have kinks and the choice of experts has jumps, which a step must not reach; elsewhere a
  // longer one has less rounding in it.
  const bool kinks = decoder.config().ffn().has_moe();
  const double h = kinks ? 3e-6 : 1e-3;
  const double derivative =
      (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
  std::copy(saved.begin(), saved.end(), x);
  decoder.WeightsChanged(pool);
  return derivative;
}

// A random direction of length 1 over the whole tensor, then single elements.
std::vector<std::vector<double>> Directions(const Parameter& parameter) {
  const std::uint64_t key = RandomKey(7, parameter.name);
  const std::int64_t n = parameter.value.size();
  std::vector<std::vector<double>> directions(1, std::vector<double>(n));
  double norm = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    directions[0][i] = Normal(key, i);
    norm += directions[0][i] * directions[0][i];
  }
  for (double& d : directions[0]) d /= std::sqrt(norm);
  for (int s = 0; s < kSampledElements; ++s) {
    std::vector<double> one(n, 0.0);
    one[static_cast<std::int64_t>(Uniform(key, n + s) * static_cast<double>(n))] = 1;
    directions.push_back(std::move(one));
  }
  return directions;
}

void ExpectGradientsMatchDifferences(const ModelConfig& config) {
  const std::unique_ptr<Decoder> decoder =
      RandomDecoder(config, {.compute = DType::kF64, .gemm = GemmBackend::kContract});
  // Three documents, the first longer than two of the widest windows, the second shorter than the
  // narrowest.
  const TokenBatch batch = RandomBatch({13, 2, 6}, config.vocab_size());
  ThreadPool pool(1);
  const double loss = decoder->ForwardBackward(batch, kLossScale, pool);
  const double auxiliary = decoder->auxiliary_loss();
  EXPECT_EQ(loss, decoder->Loss(batch, pool));
  EXPECT_EQ(auxiliary, decoder->auxiliary_loss());

  double worst = 0;
  for (const Parameter* parameter : decoder->parameters()) {
    if (parameter->role == ParameterRole::kBalancingBias) continue;  // has loads, not a gradient
    const std::vector<double> gradient = GradientOf(*parameter);
    std::vector<double> analytic, numeric;
    for (const std::vector<double>& direction : Directions(*parameter)) {
      double dot = 0;
      for (std::size_t i = 0; i < direction.size(); ++i) dot += gradient[i] * direction[i];
      analytic.push_back(dot);
      numeric.push_back(Difference(*decoder, batch, *parameter, direction, pool));
    }
    const double error = RelativeDifference(analytic, numeric);
    EXPECT_LE(error, 1e-7) << config.name() << " " << parameter->name;
    EXPECT_GT(std::fabs(numeric[0]), 1e-7) << parameter->name << " does not matter";
    worst = std::max(worst, error);
  }
  std::cout << config.name() << ": worst relative error " << worst << std::endl;
}

TEST(DecoderGradientTest, EverythingOn) { ExpectGradientsMatchDifferences(EverythingConfig()); }

TEST(DecoderGradientTest, TheOtherChoices) { ExpectGradientsMatchDifferences(OtherwiseConfig()); }

TEST(DecoderGradientTest, Plain) { ExpectGradientsMatchDifferences(PlainConfig()); }

TEST(DecoderGradientTest, Experts) { ExpectGradientsMatchDifferences(ExpertsConfig()); }

TEST(DecoderGradientTest, Spark) { ExpectGradientsMatchDifferences(SparkConfig()); }

TEST(DecoderGradientTest, BalancingBiasesGetTheLoads) {
  const std::unique_ptr<Decoder> decoder =
      RandomDecoder(SparkConfig(), {.gemm = GemmBackend::kContract});
  const TokenBatch batch = RandomBatch({13, 2, 6}, 19);
  ThreadPool pool(1);
  decoder->ForwardBackward(batch, kLossScale, pool);
  int found = 0;
  for (const Parameter* parameter : decoder->parameters()) {
    if (parameter->role != ParameterRole::kBalancingBias) continue;
    double choices = 0;
    for (const double load : GradientOf(*parameter)) choices += load;
    EXPECT_EQ(choices, 21 * 3) << parameter->name;
    ++found;
  }
  EXPECT_EQ(found, 4);
}

TEST(DecoderGradientTest, EverythingOnUnfused) {
  ModelConfig config = EverythingConfig();
  config.set_name("unfused");
  config.mutable_attention()->set_unfused_qkv(true);
  ExpectGradientsMatchDifferences(config);
}

TEST(DecoderGradientTest, NoNormsAnywhere) {
  ModelConfig config = EverythingConfig();
  config.set_name("no norms");
  config.clear_embedding_norm();
  config.clear_attention_norm();
  config.clear_post_attention_norm();
  config.clear_ffn_norm();
  config.clear_post_ffn_norm();
  config.clear_final_norm();
  ExpectGradientsMatchDifferences(config);
}

}  // namespace
}  // namespace headwise
