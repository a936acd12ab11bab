// Pins the bits: hashes of the reference's and the fast path's results on integer-generated inputs,
// the same on every machine and in every build configuration. A changed hash is a changed contract:
// bump kNewtonSchulzContractVersion with it.
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "core/heads/packed_qkv.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/parity.h"

namespace headwise {
namespace {

static_assert(kNewtonSchulzContractVersion == 1);

struct Golden {
  const char* name;
  std::int64_t other_axis;
  HeadBlocks (*blocks)();
  const NewtonSchulzCoefficients& (*coefficients)();
  double scale;
  std::uint64_t hash;
};

std::ostream& operator<<(std::ostream& out, const Golden& g) { return out << g.name; }

HeadBlocks Heads() { return HeadBlocks::FromPacked(*PackedQkv::Interleaved({2, 1, 64})); }
HeadBlocks KvGroups() {
  return *HeadBlocks::FromPacked(*PackedQkv::Sectioned({4, 2, 16})).Coarsen(Granularity::kKvGroup);
}
HeadBlocks Unequal() { return BlocksOfSizes({33, 1, 100}); }
HeadBlocks Columns() { return BlocksOfSizes({40, 24}, BlockAxis::kColumns); }
HeadBlocks Tall() { return HeadBlocks::Whole(700); }

const NewtonSchulzCoefficients& Restarting() {
  static const auto* const set = new NewtonSchulzCoefficients{
      .name = "restarting",
      .steps = {{3.5f, -4.75f, 2.0f}, {3.25f, -4.5f, 2.0f}, {3.0f, -3.25f, 1.25f}},
      .restarts_after = {2}};
  return *set;
}

const Golden kGoldens[] = {
    {"heads", 512, Heads, Quintic5, 1.0, 0xfe3f8b3c897bdff8},          //
    {"kv_groups", 1000, KvGroups, Quintic5, 1.0, 0xb02bdbea5ce2f924},  //
    {"unequal", 257, Unequal, Quintic5, 1.0, 0x5a8437281a2c796f},      //
    {"columns", 70, Columns, Quintic5, 1.0, 0x156150b5d1bad372},       //
    {"tall", 90, Tall, Quintic5, 1.0, 0x352aaa7ed226f205},             //
    {"restarts", 300, KvGroups, Restarting, 1.0, 0x121b1081fa14c2c6},  //
    {"polar", 300, Heads, PolarExpress8, 1.0, 0xbceacf823f895611},     //
    {"tiny", 300, KvGroups, Quintic5, 0x1p-130, 0x252a33321ca4ab1a},   //
    {"huge", 300, KvGroups, Quintic5, 0x1p125, 0x54330f6efa141058},    //
};

std::uint64_t HashOf(const FloatMatrix& m) {
  Fnv1a64 sum;
  AddToChecksum(sum, m.view());
  return sum.value();
}

class Goldens : public testing::TestWithParam<Golden> {};

TEST_P(Goldens, HashIsPinned) {
  const Golden& golden = GetParam();
  const HeadBlocks blocks = golden.blocks();
  const bool by_rows = blocks.axis() == BlockAxis::kRows;
  FloatMatrix input(by_rows ? blocks.axis_size() : golden.other_axis,
                    by_rows ? golden.other_axis : blocks.axis_size());
  Fill(input, 2026, golden.scale);
  const NewtonSchulzCoefficients& set = golden.coefficients();
  EXPECT_EQ(ChecksumToHex(HashOf(ReferenceOf(set, input, blocks))), ChecksumToHex(golden.hash))
      << "reference";
  EXPECT_EQ(ChecksumToHex(HashOf(FastOf(set, input, blocks))), ChecksumToHex(golden.hash))
      << "fast path";
}

INSTANTIATE_TEST_SUITE_P(Cases, Goldens, testing::ValuesIn(kGoldens),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace headwise
