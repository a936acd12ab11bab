// What the CUDA kernels move, counted by the emulation, at Muse geometry: 16 kv groups of 8 query
// heads, a key and a value, head_dim 64, bf16. These are the bytes of docs/performance.md, least
// possible, in full 16-byte vectors and full sectors.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/emulated_problem.h"

namespace headwise {
namespace {

constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kForwardBytes = 40960, kBackwardBytes = 59392;  // per token
constexpr std::int64_t kTableRow = 2 * 32 * sizeof(float);             // cos and sin

Shape MuseShape(std::int64_t tokens) {
  return {.tokens = tokens,
          .kv_heads = 16,
          .group_size = 8,
          .head_dim = 64,
          .norm = HeadNorm::kGainCentered,
          .pairing = RotaryPairing::kHalf};
}

// Bytes moved to and from a region of activations, after checking how.
std::int64_t VectorBytes(const emulation::Session& session, const std::string& region) {
  const emulation::Traffic& t = session.traffic(region);
  EXPECT_EQ(t.narrowest, 16) << region;
  EXPECT_EQ(t.widest, 16) << region;
  EXPECT_EQ(t.partly_used_sectors, 0) << region;
  EXPECT_EQ(t.sectors * 32, t.loads + t.stores) << region;
  EXPECT_EQ(t.atomics, 0) << region;
  return t.loads + t.stores;
}

// Of the forward's matrices; v only where it is written.
std::int64_t ForwardBytes(const emulation::Session& session, bool writes_v = true) {
  return VectorBytes(session, "packed") + VectorBytes(session, "q") + VectorBytes(session, "k") +
         (writes_v ? VectorBytes(session, "v") : 0);
}

class Traffic : public testing::TestWithParam<Packing> {
 protected:
  // Runs forward of `shape` under `session`.
  static void RunForward(const Problem<BFloat16>& problem, const Results<BFloat16>& results,
                         LaunchMemory& memory, emulation::Session& session) {
    AddForwardRegions(problem, results, session);
    memory.AddRegions(session);
    const absl::Status status = cuda_emulated::PrepareQkv<BFloat16>(
        problem.op(), problem.inputs(), Problem<BFloat16>::Outputs(results), memory.launch());
    ASSERT_TRUE(status.ok()) << status;
  }
  static LaunchMemory Memory(const Problem<BFloat16>& problem) {
    return LaunchMemory(problem.op(), problem.inputs().positions, problem.inputs().packed.rows,
                        /*device_positions=*/false);
  }
};
INSTANTIATE_TEST_SUITE_P(Packings, Traffic,
                         testing::Values(Packing::kInterleavedPerKvGroup, Packing::kSectioned));

TEST_P(Traffic, ForwardMovesEveryActivationOnce) {
  Shape shape = MuseShape(kTokens);
  shape.packing = GetParam();
  const Problem<BFloat16> problem(shape);
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory = Memory(problem);
  emulation::Session session({.count_traffic = true});
  RunForward(problem, results, memory, session);
  ASSERT_EQ(session.launches().size(), 1);
  EXPECT_EQ(VectorBytes(session, "packed") + VectorBytes(session, "q") + VectorBytes(session, "k") +
                VectorBytes(session, "v"),
            kTokens * kForwardBytes);
  EXPECT_EQ(session.traffic("packed").stores, 0);
  // At most one table row per kv group and token; in fact one per warp.
  const std::int64_t table = session.traffic("cos").loads + session.traffic("sin").loads;
  EXPECT_LE(table, kTokens * 16 * kTableRow);
  EXPECT_LE(32 * (session.traffic("cos").sectors + session.traffic("sin").sectors),
            kTokens * 16 * kTableRow);
  EXPECT_EQ(table, kTokens * 5 * kTableRow);
}

TEST_P(Traffic, LeavingValuesInPlaceSavesTheirBytes) {
  Shape shape = MuseShape(kTokens);
  shape.packing = GetParam();
  shape.write_v = false;
  const Problem<BFloat16> problem(shape);
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory = Memory(problem);
  emulation::Session session({.count_traffic = true});
  RunForward(problem, results, memory, session);
  EXPECT_EQ(ForwardBytes(session, /*writes_v=*/false), kTokens * 36864);
}

TEST_P(Traffic, BackwardMovesEveryGradientOnce) {
  Shape shape = MuseShape(kTokens);
  shape.packing = GetParam();
  const Problem<BFloat16> problem(shape);
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory = Memory(problem);
  emulation::Session session({.count_traffic = true});
  AddBackwardRegions(problem, results, session);
  memory.AddRegions(session);
  const absl::Status status = cuda_emulated::PrepareQkvBackward<BFloat16>(
      problem.op(), problem.inputs(), problem.gradients(), problem.Gradients(results),
      memory.launch());
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(session.launches().size(), 2);  // the kernel and the weight gradients' tail
  std::int64_t bytes = 0;
  for (const char* region : {"packed", "dq", "dk", "dv", "dpacked"}) {
    bytes += VectorBytes(session, region);
  }
  EXPECT_EQ(bytes, kTokens * kBackwardBytes);
  // A v head of the packed row is not read.
  EXPECT_EQ(session.traffic("packed").loads, kTokens * (128 + 16) * 64 * 2);
  const emulation::Traffic& scratch = session.traffic("scratch");
  EXPECT_EQ(scratch.stores, scratch.loads);
  EXPECT_LE(static_cast<double>(scratch.stores + scratch.loads),
            0.003 * kTokens * (kForwardBytes + kBackwardBytes));
  EXPECT_LE(32 * (session.traffic("cos").sectors + session.traffic("sin").sectors),
            kTokens * 16 * kTableRow);
}

// The NoPE layer looks at no table and no position.
TEST(TrafficTest, NoPEReadsNoTable) {
  Shape shape = MuseShape(kTokens);
  shape.pairing = std::nullopt;
  const Problem<BFloat16> problem(shape);
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory(problem.op(), {}, kTokens, /*device_positions=*/false);
  emulation::Session session({.count_traffic = true});
  AddForwardRegions(problem, results, session);
  ASSERT_TRUE(cuda_emulated::PrepareQkv<BFloat16>(problem.op(), problem.inputs(),
                                                  Problem<BFloat16>::Outputs(results),
                                                  memory.launch())
                  .ok());
  EXPECT_EQ(VectorBytes(session, "packed") + VectorBytes(session, "q") + VectorBytes(session, "k") +
                VectorBytes(session, "v"),
            kTokens * kForwardBytes);
}

TEST_P(Traffic, DecodeIsOneLaunch) {
  Shape shape = MuseShape(1);
  shape.packing = GetParam();
  const Problem<BFloat16> problem(shape);
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory = Memory(problem);
  emulation::Session session({.count_traffic = true});
  RunForward(problem, results, memory, session);
  EXPECT_EQ(session.launches().size(), 1);
  EXPECT_EQ(VectorBytes(session, "packed") + VectorBytes(session, "q") + VectorBytes(session, "k") +
                VectorBytes(session, "v"),
            kForwardBytes);
}

TEST(TrafficTest, NoTokensNoLaunch) {
  const Problem<BFloat16> problem(MuseShape(0));
  const Results<BFloat16> results = problem.MakeResults();
  LaunchMemory memory(problem.op(), {}, 0, /*device_positions=*/false);
  emulation::Session session;
  ASSERT_TRUE(cuda_emulated::PrepareQkv<BFloat16>(problem.op(), problem.inputs(),
                                                  Problem<BFloat16>::Outputs(results),
                                                  memory.launch())
                  .ok());
  EXPECT_EQ(session.launches().size(), 0);
}

}  // namespace
}  // namespace headwise
