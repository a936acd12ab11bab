// The unfused CUDA kernels, on the emulation, return the reference's bits: what is measured against
// the fused ones is their equal. They touch nothing but their matrices, and refuse what they are not
// written for.
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "kernels/prepare_qkv/emulated_problem.h"

namespace headwise {
namespace {

// Poisoned; each tensor a region of its own.
template <typename T>
class Workspace {
 public:
  explicit Workspace(const Problem<T>& problem)
      : q_size_(problem.gradients().dq.size()),
        k_size_(problem.gradients().dk.size()),
        elements_(UnfusedElements(problem.op(), problem.gradients().dq.rows), Narrow<T>(-1e30f)),
        partials_(UnfusedPartials(problem.op(), problem.gradients().dq.rows), -1e30f),
        workspace_(MakeUnfusedWorkspace(problem.op(), problem.gradients().dq.rows, elements_.data(),
                                        partials_.data())) {}

  const UnfusedWorkspace<T>& get() const { return workspace_; }
  void AddRegions(emulation::Session& session) const {
    const auto add = [&](const char* name, const auto* data, std::int64_t size) {
      if (size == 0) return;
      session.AddRegion(name, data, size * static_cast<std::int64_t>(sizeof(*data)),
                        emulation::Access::kReadWrite);
    };
    add("split q", workspace_.q, q_size_);
    add("split k", workspace_.k, k_size_);
    add("normed q", workspace_.q_norm, q_size_);
    add("normed k", workspace_.k_norm, k_size_);
    add("split dq", workspace_.dq, q_size_);
    add("split dk", workspace_.dk, k_size_);
    add("partials", workspace_.partials, static_cast<std::int64_t>(partials_.size()));
  }

 private:
  std::int64_t q_size_, k_size_;
  // std::allocator aligns to 16 bytes, which is what the kernels need.
  std::vector<T> elements_;
  std::vector<float> partials_;
  UnfusedWorkspace<T> workspace_;
};

// The backward with the forward's workspace, or with one of its own that is split again.
enum class Split { kOnce, kAgain };

template <typename T>
absl::StatusOr<Results<T>> RunUnfused(const Problem<T>& problem, const emulation::Options& options,
                                      Split split = Split::kOnce) {
  Results<T> results = problem.MakeResults();
  QkvInputs<T> in = problem.inputs();
  LaunchMemory memory(problem.op(), in.positions, in.packed.rows, /*device_positions=*/true);
  Workspace<T> workspace(problem);
  in.positions = {};
  {
    emulation::Session session(options);
    AddForwardRegions(problem, results, session);
    memory.AddRegions(session);
    workspace.AddRegions(session);
    const absl::Status status = cuda_emulated::PrepareQkvUnfused<T>(
        problem.op(), in, Problem<T>::Outputs(results), workspace.get(), memory.launch());
    if (!status.ok()) return status;
    EXPECT_EQ(memory.first_bad_token(), -1);
  }
  Workspace<T> other(problem);
  const Workspace<T>& kept = split == Split::kOnce ? workspace : other;
  if (split == Split::kAgain) {
    emulation::Session session(options);
    AddForwardRegions(problem, results, session);
    other.AddRegions(session);
    const absl::Status status =
        cuda_emulated::SplitQkvUnfused<T>(problem.op(), in, other.get(), memory.launch());
    if (!status.ok()) return status;
  }
  emulation::Session session(options);
  AddBackwardRegions(problem, results, session);
  memory.AddRegions(session);
  kept.AddRegions(session);
  const absl::Status status = cuda_emulated::PrepareQkvBackwardUnfused<T>(
      problem.op(), in, problem.gradients(), problem.Gradients(results), kept.get(),
      memory.launch());
  if (!status.ok()) return status;
  return results;
}

template <typename T>
class EmulatedUnfused : public testing::Test {
 protected:
  void Check(const Shape& shape, const emulation::Options& options = {},
             Split split = Split::kOnce) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<T> problem(shape);
    const absl::StatusOr<Results<T>> results = RunUnfused(problem, options, split);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ(Difference(*results, problem.RunReference()), "");
  }
};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedUnfused, StorageTypes);

TYPED_TEST(EmulatedUnfused, SameBits) {
  std::uint64_t seed = 0;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const HeadNorm norm :
         {HeadNorm::kScaleless, HeadNorm::kWeighted, HeadNorm::kGainCentered}) {
      for (const std::optional<RotaryPairing> pairing :
           {std::optional(RotaryPairing::kHalf), std::optional<RotaryPairing>()}) {
        for (const Packing packing : {Packing::kInterleavedPerKvGroup, Packing::kSectioned}) {
          for (const float query_scale : {1.0f, 5.4730065f}) {
            const Split split = seed % 4 < 2 ? Split::kOnce : Split::kAgain;
            this->Check({.tokens = 1 + static_cast<std::int64_t>(seed) * 7 % 9,
                         .head_dim = head_dim,
                         .packing = packing,
                         .norm = norm,
                         .query_scale = query_scale,
                         .pairing = pairing,
                         .write_v = seed % 3 != 0,
                         .seed = ++seed},
                        {}, split);
          }
        }
      }
    }
  }
}

// Tiles of 64 tokens in numbers around powers of two, and groups that pad.
TYPED_TEST(EmulatedUnfused, SumsOfManyTilesAndHeads) {
  for (const std::int64_t tokens : {63, 64, 65, 192, 193, 1100}) {
    this->Check({.tokens = tokens, .kv_heads = 1, .group_size = tokens % 2 == 0 ? 5 : 1});
  }
}

TYPED_TEST(EmulatedUnfused, EveryKindOfValueInAnyThreadOrder) {
  for (const Values values : kAllValues) {
    this->Check({.query_scale = 0.3f, .values = values},
                {.order = emulation::ThreadOrder::kRandom, .seed = 7, .preempt = 0.1});
  }
}

// Weights' gradients become +0, and nothing is launched.
TYPED_TEST(EmulatedUnfused, NoTokens) {
  for (const std::int64_t group_size : {1, 5}) {
    this->Check({.tokens = 0, .group_size = group_size, .norm = HeadNorm::kWeighted});
    this->Check({.tokens = 0, .group_size = group_size, .norm = HeadNorm::kScaleless}, {},
                Split::kAgain);
  }
}

// The smallest token is kept, and the table is not read where it has no row.
TYPED_TEST(EmulatedUnfused, APositionOutsideOfTheTableIsNoted) {
  const Problem<TypeParam> problem({.tokens = 9});
  const std::int64_t length = problem.op().rotary->length();
  for (const std::int64_t bad : {std::int64_t{-1}, length, length + 1000}) {
    QkvInputs<TypeParam> in = problem.inputs();
    std::vector<std::int64_t> positions(in.positions.begin(), in.positions.end());
    positions[3] = positions[7] = bad;
    LaunchMemory memory(problem.op(), positions, 9, /*device_positions=*/true);
    Results<TypeParam> results = problem.MakeResults();
    const Workspace<TypeParam> workspace(problem);
    in.positions = {};
    emulation::Session session;
    AddForwardRegions(problem, results, session);
    memory.AddRegions(session);
    workspace.AddRegions(session);
    ASSERT_TRUE(cuda_emulated::PrepareQkvUnfused<TypeParam>(problem.op(), in,
                                                            Problem<TypeParam>::Outputs(results),
                                                            workspace.get(), memory.launch())
                    .ok());
    ASSERT_TRUE(session.status().ok()) << session.status();
    EXPECT_EQ(memory.first_bad_token(), 3);
  }
}

TEST(EmulatedCopy, CopiesWhatItIsGivenAndNoMore) {
  for (const std::int64_t vectors : {0, 1, 255, 256, 1024, 1025, 3000}) {
    std::vector<float> from(4 * vectors + 4), to(from.size(), -1);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    ASSERT_TRUE(cuda_emulated::CopyVectors(from.data(), to.data(), 16 * vectors, nullptr).ok());
    for (std::int64_t i = 0; i < 4; ++i) from[4 * vectors + i] = -1;
    EXPECT_EQ(to, from) << vectors;
  }
}

TYPED_TEST(EmulatedUnfused, RefusesWhatItIsNotWrittenFor) {
  const Shape refused[] = {{.head_dim = 32},
                           {.norm = HeadNorm::kNone},
                           {.rounding = Rounding::kOnlyAtEnd},
                           {.pairing = RotaryPairing::kInterleaved},
                           {.rotary_dim = 32},
                           {.row_gap = 8},
                           {.misalign = 1}};
  for (const Shape& shape : refused) {
    const Problem<TypeParam> problem(shape);
    EXPECT_EQ(RunUnfused(problem, {}).status().code(), absl::StatusCode::kUnimplemented) << shape;
    const bool memory = shape.row_gap != 0 || shape.misalign != 0;
    EXPECT_EQ(CheckUnfused(problem.op()).ok(), memory) << shape;
  }
}

}  // namespace
}  // namespace headwise
