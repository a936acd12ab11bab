// With the contract GEMM and no rotary table (whose sines are the C library's), a forward and
// backward pass gives these bits on every machine and under every instruction set.
#include <bit>
#include <cstdint>
#include <memory>
#include <string>

#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

// The checksum of the loss and of every gradient's bytes.
std::uint64_t Checksum(ModelConfig config, DType compute) {
  config.mutable_attention()->mutable_rope()->set_nope_every(1);
  const std::unique_ptr<Decoder> decoder =
      RandomDecoder(config, {.compute = compute, .gemm = GemmBackend::kContract});
  ThreadPool pool(2);
  const double loss =
      decoder->ForwardBackward(RandomBatch({40, 5, 70}, config.vocab_size()), 1.0 / 64, pool);
  Fnv1a64 sum;
  sum.UpdateValue(std::bit_cast<std::uint64_t>(loss));
  for (const std::string& gradient : GradientBits(*decoder)) {
    sum.Update(gradient.data(), gradient.size());
  }
  return sum.value();
}

TEST(DecoderGoldenTest, SinglePrecision) {
  EXPECT_EQ(Checksum(EverythingConfig(), DType::kF32), 33115193818728333u);
  EXPECT_EQ(Checksum(OtherwiseConfig(), DType::kF32), 7060000212326481781u);
}

TEST(DecoderGoldenTest, Bf16) {
  EXPECT_EQ(Checksum(EverythingConfig(), DType::kBF16), 3382012551447598302u);
  EXPECT_EQ(Checksum(OtherwiseConfig(), DType::kBF16), 1379229982200715867u);
}

}  // namespace
}  // namespace headwise
