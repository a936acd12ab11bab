// The bits themselves, pinned: inputs and rotary table made by integer arithmetic, so that the
// hashes hold on every machine, under `native` and `--config=portable`.
//
// A change here is a change of the contract: bump kPrepareQkvContractVersion, say why in the
// changelog, and copy the hashes that a failing test prints.
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {
namespace {

static_assert(kPrepareQkvContractVersion == 1, "new contract, new hashes");

struct Golden {
  Shape shape;
  std::uint64_t fp32, bf16;  // Hash() of the results in either storage
};

constexpr std::int64_t kTokens = 70;  // a whole tile and a part

const Golden kGoldens[] = {
    // The norms and roundings, on whole vectors.
    {{.tokens = kTokens, .norm = HeadNorm::kWeighted}, 0x7c7d2d4fa020f8f7, 0x12422422982730ef},
    {{.tokens = kTokens, .rounding = Rounding::kBeforeWeight, .query_scale = 0.3f},
     0x741c1977f4ff7ec7,
     0x6a122686e19a5340},
    {{.tokens = kTokens, .rounding = Rounding::kOnlyAtEnd, .query_scale = 0.3f},
     0x741c1977f4ff7ec7,
     0xa164fcd9f0390f4e},
    {{.tokens = kTokens, .norm = HeadNorm::kGainCentered}, 0x38c3e3a44e65dd92, 0xddee876aaf6658c1},
    {{.tokens = kTokens, .norm = HeadNorm::kScaleless, .query_scale = 2.5f},
     0xca9a05a4bfb663b4,
     0xa6067ec9df376391},
    {{.tokens = kTokens, .norm = HeadNorm::kNone}, 0x96574735df9a594f, 0x522fd7e05dfa9d99},
    {{.tokens = kTokens, .norm = HeadNorm::kNone, .pairing = std::nullopt},
     0x61d559663612ddfa,
     0x58156dc8b273f460},
    {{.tokens = kTokens, .pairing = std::nullopt}, 0xb528cf6208bd5ddb, 0x4915d50619d3bdb2},
    // Packings, pairings, partial rotation.
    {{.tokens = kTokens, .packing = Packing::kSectioned}, 0x5d6782e5811d453d, 0x77128d8e996de358},
    {{.tokens = kTokens, .pairing = RotaryPairing::kInterleaved},
     0xf340e72970b7c5e9,
     0x463cc6ee87e9350f},
    {{.tokens = kTokens, .head_dim = 128, .rotary_dim = 64},
     0xf5b45020af67ef9e,
     0x3d4a674b02d7de91},
    // Sizes off the vectors' grid.
    {{.tokens = kTokens, .group_size = 7, .head_dim = 2}, 0x14910ea20f2a1fdc, 0xede1dd6bf9d16760},
    {{.tokens = kTokens, .group_size = 5, .head_dim = 54, .rotary_dim = 20},
     0xe76a2aea5707eb04,
     0x3cfcbd8b0a63d60d},
    {{.tokens = kTokens, .kv_heads = 3, .group_size = 1, .head_dim = 96},
     0xdd38b3392c8e6e2c,
     0xda41f2532cdc839f},
    {{.tokens = 200, .kv_heads = 1, .group_size = 12, .head_dim = 128},
     0x3e037ffe25f4adc8,
     0x4ead003faf9983e7},
    {{.tokens = 9, .head_dim = 512, .norm = HeadNorm::kGainCentered},
     0xd16721ea8e75d99b,
     0x9e650d3d6fb3874c},
};

template <typename T>
void CheckHashes(Shape shape, std::uint64_t expected) {
  shape.values = Values::kIntegers;
  SCOPED_TRACE(testing::Message() << shape);
  const Problem<T> problem(shape);
  ThreadPool pool(2);
  const auto hex = [](std::uint64_t hash) {
    std::ostringstream out;
    out << "0x" << std::hex << std::setw(16) << std::setfill('0') << hash;
    return out.str();
  };
  EXPECT_EQ(hex(Hash(problem.RunReference())), hex(expected)) << "reference";
  EXPECT_EQ(hex(Hash(problem.RunCpu(pool))), hex(expected)) << "cpu";
  EXPECT_EQ(hex(Hash(problem.RunUnfused(pool))), hex(expected)) << "unfused";
}

TEST(Golden, Fp32) {
  for (const Golden& golden : kGoldens) CheckHashes<float>(golden.shape, golden.fp32);
}

TEST(Golden, Bf16) {
  for (const Golden& golden : kGoldens) CheckHashes<BFloat16>(golden.shape, golden.bf16);
}

}  // namespace
}  // namespace headwise
