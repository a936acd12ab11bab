// The unfused CUDA kernels, on the emulation, return the reference's bits: the benchmark compares
// equals. They touch nothing but their matrices, and refuse what they are not written for.
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

// Poisoned.
template <typename T>
class Workspace {
 public:
  explicit Workspace(const Problem<T>& problem)
      : q_(problem.gradients().dq.size(), Narrow<T>(-1e30f)),
        k_(problem.gradients().dk.size(), Narrow<T>(-1e30f)),
        q_norm_(q_),
        k_norm_(k_),
        dq_(q_),
        dk_(k_),
        partials_(UnfusedPartials(problem.op(), problem.gradients().dq.rows), -1e30f) {}

  UnfusedWorkspace<T> get() {
    return {q_.data(),  k_.data(),  q_norm_.data(),  k_norm_.data(),
            dq_.data(), dk_.data(), partials_.data()};
  }
  void AddRegions(emulation::Session& session) {
    const auto add = [&](const char* name, auto& values) {
      if (values.empty()) return;
      session.AddRegion(name, values.data(),
                        static_cast<std::int64_t>(values.size() * sizeof(values[0])),
                        emulation::Access::kReadWrite);
    };
    add("split q", q_);
    add("split k", k_);
    add("normed q", q_norm_);
    add("normed k", k_norm_);
    add("split dq", dq_);
    add("split dk", dk_);
    add("partials", partials_);
  }

 private:
  // std::allocator aligns to 16 bytes, which is what the kernels need.
  std::vector<T> q_, k_, q_norm_, k_norm_, dq_, dk_;
  std::vector<float> partials_;
};

template <typename T>
absl::StatusOr<Results<T>> RunUnfused(const Problem<T>& problem,
                                      const emulation::Options& options) {
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
  }
  emulation::Session session(options);
  AddBackwardRegions(problem, results, session);
  memory.AddRegions(session);
  workspace.AddRegions(session);
  const absl::Status status = cuda_emulated::PrepareQkvBackwardUnfused<T>(
      problem.op(), in, problem.gradients(), problem.Gradients(results), workspace.get(),
      memory.launch());
  if (!status.ok()) return status;
  return results;
}

template <typename T>
class EmulatedUnfused : public testing::Test {
 protected:
  void Check(const Shape& shape, const emulation::Options& options = {}) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<T> problem(shape);
    const absl::StatusOr<Results<T>> results = RunUnfused(problem, options);
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
          this->Check({.tokens = 1 + static_cast<std::int64_t>(seed) * 7 % 9,
                       .head_dim = head_dim,
                       .packing = packing,
                       .norm = norm,
                       .pairing = pairing,
                       .write_v = seed % 3 != 0,
                       .seed = ++seed});
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
    this->Check({.values = values},
                {.order = emulation::ThreadOrder::kRandom, .seed = 7, .preempt = 0.1});
  }
}

TYPED_TEST(EmulatedUnfused, RefusesWhatItIsNotWrittenFor) {
  const Shape refused[] = {{.tokens = 0},
                           {.head_dim = 32},
                           {.norm = HeadNorm::kNone},
                           {.rounding = Rounding::kOnlyAtEnd},
                           {.query_scale = 2},
                           {.pairing = RotaryPairing::kInterleaved},
                           {.rotary_dim = 32},
                           {.row_gap = 8},
                           {.misalign = 1}};
  for (const Shape& shape : refused) {
    EXPECT_EQ(RunUnfused(Problem<TypeParam>(shape), {}).status().code(),
              absl::StatusCode::kUnimplemented)
        << shape;
  }
}

}  // namespace
}  // namespace headwise
