// What a step moves, counted by the emulation: the bytes of docs/performance.md, least possible, in
// full vectors and full sectors; and how many launches it takes, whatever the weights.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/row_span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/emulated_step.h"

namespace headwise {
namespace {

constexpr std::int64_t kAlignment = 128;

// A matrix at a multiple of kAlignment bytes, full of small numbers.
template <typename T>
class AlignedMatrix {
 public:
  AlignedMatrix(std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), storage_(rows * cols + kAlignment / sizeof(T)) {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      storage_[i] = Narrow<T>(static_cast<float>(i * 7919 % 64) / 64.0f - 0.5f);
    }
  }
  RowSpan<T> span() {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    const std::uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment;
    return {storage_.data() + (aligned - address) / sizeof(T), rows_, cols_};
  }

 private:
  std::int64_t rows_, cols_;
  std::vector<T> storage_;
};

template <typename G>
struct AlignedWeight {
  AlignedWeight(HeadBlocks b, std::int64_t rows, std::int64_t cols)
      : blocks(std::move(b)), weight(rows, cols), momentum(rows, cols), gradient(rows, cols) {}
  MuonWeight<G> view() {
    return {.weight = weight.span(),
            .momentum = momentum.span(),
            .gradient = gradient.span(),
            .blocks = &blocks};
  }

  HeadBlocks blocks;
  AlignedMatrix<float> weight, momentum;
  AlignedMatrix<G> gradient;
};

// Loads and stores of a region, after checking that all of it moved in vectors of `bytes` bytes and
// in whole sectors.
void ExpectVectors(const emulation::Traffic& t, int bytes, std::int64_t loads,
                   std::int64_t stores) {
  EXPECT_EQ(t.loads, loads);
  EXPECT_EQ(t.stores, stores);
  EXPECT_EQ(t.narrowest, bytes);
  EXPECT_EQ(t.widest, bytes);
  EXPECT_EQ(t.partly_used_sectors, 0);
  EXPECT_EQ(t.sectors * 32, t.loads + t.stores);
  EXPECT_EQ(t.atomics, 0);
}

template <typename G>
class EmulatedTraffic : public testing::Test {
 protected:
  // Elements of a step with the chain on chip, and the bytes an element of its scratch and table.
  void Check(const HeadBlocks& blocks, std::int64_t rows, std::int64_t cols, std::int64_t d) {
    CheckMode(blocks, rows, cols, d, MuonMode::kContract);
    CheckMode(blocks, rows, cols, d, MuonMode::kTensorCore);
  }

  void CheckMode(const HeadBlocks& blocks, std::int64_t rows, std::int64_t cols, std::int64_t d,
                 MuonMode mode) {
    const bool contract = mode == MuonMode::kContract;
    SCOPED_TRACE(
        absl::StrCat(contract ? "contract" : "tensor cores", " [", rows, ", ", cols, "], d = ", d));
    AlignedWeight<G> weight(blocks, rows, cols);
    const std::vector<MuonWeight<G>> views = {weight.view()};
    const MuonHyperparameters hyper;
    EmulatedStep step(*MuonStepPlan::Create<G>(hyper, views, mode), hyper, /*skip=*/0);
    emulation::Session session({.count_traffic = true});
    step.AddRegions(views, session);
    const absl::Status status = cuda_emulated::MuonStep(step.plan(), step.launch());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(session.launches().size(), 3);

    const std::int64_t elements = rows * cols, gradient = sizeof(G);
    ExpectVectors(session.traffic("gradient0"), 4 * gradient, 2 * gradient * elements, 0);
    ExpectVectors(session.traffic("momentum0"), 16, 2 * 4 * elements, 4 * elements);
    ExpectVectors(session.traffic("weight0"), 16, 4 * elements, 4 * elements);
    std::int64_t bytes = 0;
    for (const char* region : {"gradient0", "momentum0", "weight0"}) {
      bytes += session.traffic(region).loads + session.traffic(region).stores;
    }
    EXPECT_EQ(bytes, (gradient == 4 ? 28 : 24) * elements);

    // 136 threads store their tiles of a chunk's partial, and those on or below the diagonal are
    // loaded; Q s is stored once and loaded for each chunk; each thread looks at the largest |u|.
    const std::int64_t edge = d <= 64 ? 4 : 8, heads = views[0].blocks->size();
    const std::int64_t chunks = elements / heads / d / 256;
    const emulation::Traffic& scratch = session.traffic("scratch");
    if (contract) {
      EXPECT_EQ(scratch.stores, heads * 4 * (chunks * 136 * edge * edge + d * d));
      EXPECT_EQ(scratch.loads,
                heads * 4 * (chunks * (d * (d + 1) / 2 + d * d) + 160 + chunks * 256));
    } else {
      // Whole tiles, and a chunk's largest magnitude; each thread looks at all of these twice, and at
      // two numbers of the block.
      const std::int64_t tiles = d / 16 * (d / 16 + 1) / 2, threads = d <= 64 ? 160 : 288;
      EXPECT_EQ(scratch.stores, heads * 4 * (chunks * (tiles * 256 + 1) + d * d + 2));
      EXPECT_EQ(scratch.loads,
                heads * 4 * (chunks * (tiles * 256 + d * d + 2 * threads + 2 * 256)));
    }
    // The table is read by whole warps at once: its sectors, from the cache, are few.
    EXPECT_LE(static_cast<double>(session.traffic("table").sectors * 32),
              0.8 * static_cast<double>(elements));
  }
};

using GradientTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedTraffic, GradientTypes);

TYPED_TEST(EmulatedTraffic, HeadsOf64RowsMoveEveryElementOnceAPass) {
  this->Check(*HeadBlocks::Separate(HeadRole::kQuery, 3, 64, 1), 192, 1024, 64);
}

TYPED_TEST(EmulatedTraffic, HeadsOf128RowsMoveEveryElementOnceAPass) {
  this->Check(*HeadBlocks::Separate(HeadRole::kQuery, 2, 128, 1), 256, 1024, 128);
}

TYPED_TEST(EmulatedTraffic, BlocksOfColumnsAreNoDearer) {
  std::vector<HeadBlock> heads(2);
  heads[0].ranges = {{64, 64}};
  heads[1].ranges = {{0, 64}};
  this->Check(*HeadBlocks::Create(128, heads, BlockAxis::kColumns), 512, 128, 64);
}

// What the headers of the kernels say; those of a GPU of compute capability 8.0 are at most 163 KiB.
TEST(EmulatedLaunches, SharedMemory) {
  const auto shared = [](std::int64_t d, MuonChainMemory chain) {
    std::vector<TestWeight<float>> weights = {TestWeight<float>(HeadBlocks::Whole(d), d, 1)};
    const std::vector<MuonWeight<float>> views = ViewsOf(weights);
    EmulatedStep step(*MuonStepPlan::Create<float>({}, views, MuonMode::kContract, chain), {},
                      /*skip=*/0);
    emulation::Session session;
    EXPECT_TRUE(cuda_emulated::MuonStep(step.plan(), step.launch()).ok());
    std::vector<std::int64_t> bytes;
    for (const emulation::Launch& launch : session.launches()) {
      bytes.push_back(launch.static_shared_bytes + launch.dynamic_shared_bytes);
    }
    return bytes;
  };
  using testing::ElementsAre;
  EXPECT_THAT(shared(64, MuonChainMemory::kAuto), ElementsAre(17408, 52480, 33792));
  EXPECT_THAT(shared(72, MuonChainMemory::kAuto), ElementsAre(33792, 203264, 100352));
  EXPECT_THAT(shared(72, MuonChainMemory::kTriangles), ElementsAre(33792, 99584, 100352));
  const std::vector<std::int64_t> tiled = shared(72, MuonChainMemory::kScratch);
  EXPECT_EQ(*std::max_element(tiled.begin(), tiled.end()), 34816);
}

// Launches of a step of the weights' blocks.
template <typename G>
int Launches(const std::vector<HeadBlocks>& blocks, const NewtonSchulzCoefficients& coefficients) {
  const MuonHyperparameters hyper = {.coefficients = &coefficients};
  std::vector<TestWeight<G>> weights;
  for (const HeadBlocks& b : blocks) weights.emplace_back(b, 72, weights.size());
  const std::vector<MuonWeight<G>> views = ViewsOf(weights);
  EmulatedStep step(*MuonStepPlan::Create<G>(hyper, views), hyper, /*skip=*/0);
  emulation::Session session;
  EXPECT_TRUE(cuda_emulated::MuonStep(step.plan(), step.launch()).ok());
  EXPECT_EQ(session.launches().size(), step.plan().launches());
  return static_cast<int>(session.launches().size());
}

TEST(EmulatedLaunches, DependOnNeitherHeadsNorWeightsNorShapes) {
  const auto heads = [](std::int64_t count, std::int64_t dim) {
    return *HeadBlocks::Separate(HeadRole::kQuery, count, dim, 1);
  };
  EXPECT_EQ(Launches<float>({heads(1, 16)}, Quintic5()), 3);
  EXPECT_EQ(Launches<float>({heads(9, 16), heads(2, 64), heads(1, 5)}, Quintic5()), 3);
  EXPECT_EQ(Launches<float>({heads(2, 72)}, Quintic5()), 3);
  EXPECT_EQ(Launches<float>({heads(3, 72), heads(2, 16)}, Quintic5()), 6);
  EXPECT_EQ(Launches<BFloat16>({heads(2, 16)}, PolarExpress8()), 9);
  EXPECT_EQ(Launches<float>({}, Quintic5()), 0);
}

TEST(EmulatedLaunches, OfTiledBlocksDependOnTheCoefficientsOnly) {
  TestWeight<float> a(HeadBlocks::Whole(130), 131, 1), b(HeadBlocks::Whole(200), 140, 2);
  TestWeight<float> c(HeadBlocks::Whole(16), 20, 3);
  const auto launches = [](const std::vector<MuonWeight<float>>& weights,
                           const NewtonSchulzCoefficients& set) {
    return MuonStepPlan::Create<float>({.coefficients = &set}, weights)->launches();
  };
  EXPECT_EQ(launches({a.view()}, Quintic5()), 18);
  EXPECT_EQ(launches({a.view(), b.view()}, Quintic5()), 18);
  EXPECT_EQ(launches({a.view(), c.view()}, Quintic5()), 21);
  EXPECT_EQ(launches({a.view()}, PolarExpress8()), 29);
}

}  // namespace
}  // namespace headwise
