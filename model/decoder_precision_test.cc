// Single precision and bf16 compute what double precision computes, to within their rounding.
#include <cmath>
#include <memory>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

struct Bounds {
  double loss, gradient;  // relative
};

void ExpectClose(const ModelConfig& config, const DecoderOptions& options, Bounds bounds) {
  const std::unique_ptr<Decoder> exact =
      RandomDecoder(config, {.compute = DType::kF64, .gemm = GemmBackend::kContract});
  const std::unique_ptr<Decoder> decoder = RandomDecoder(config, options);
  const TokenBatch batch = RandomBatch({29, 3, 16}, config.vocab_size());
  ThreadPool pool(2);
  const double expected = exact->ForwardBackward(batch, 0.5, pool);
  const double loss = decoder->ForwardBackward(batch, 0.5, pool);
  EXPECT_NEAR(loss, expected, bounds.loss * expected) << config.name();
  for (std::size_t p = 0; p < exact->parameters().size(); ++p) {
    const Parameter& parameter = *decoder->parameters()[p];
    EXPECT_LE(RelativeDifference(GradientOf(parameter), GradientOf(*exact->parameters()[p])),
              bounds.gradient)
        << config.name() << " " << parameter.name;
  }
}

TEST(DecoderPrecisionTest, SinglePrecision) {
  for (const ModelConfig& config : AllTestConfigs()) {
    for (const GemmBackend gemm : {GemmBackend::kContract, GemmBackend::kOneDnn}) {
      ExpectClose(config, {.compute = DType::kF32, .gemm = gemm}, {1e-6, 1e-5});
    }
  }
}

// Without experts: which are chosen may turn on a rounding.
TEST(DecoderPrecisionTest, Bf16) {
  for (const ModelConfig& config : AllTestConfigs()) {
    if (config.ffn().has_moe()) continue;
    for (const GemmBackend gemm : {GemmBackend::kContract, GemmBackend::kOneDnn}) {
      ExpectClose(config, {.compute = DType::kBF16, .gemm = gemm}, {1e-2, 0.25});
    }
  }
}

}  // namespace
}  // namespace headwise
