// For tests: a step of TestWeights by the emulated CUDA kernels. Every matrix is a region whose gaps
// between rows are out of bounds, gradients, table and scalars are read only, and the scratch starts
// as NaN.
#ifndef HEADWISE_KERNELS_MUON_STEP_EMULATED_STEP_H_
#define HEADWISE_KERNELS_MUON_STEP_EMULATED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/muon_step/parity.h"

namespace headwise {

struct EmulatedOptions {
  emulation::Options emulation;
  MuonMode mode = MuonMode::kContract;
  MuonChainMemory chain = MuonChainMemory::kAuto;
  std::uint32_t skip = 0;
};

// A plan with the memory of its launches.
class EmulatedStep {
 public:
  EmulatedStep(MuonStepPlan plan, const MuonHyperparameters& hyper, std::uint32_t skip)
      : plan_(std::move(plan)),
        scalars_{.learning_rate = hyper.learning_rate,
                 .gradient_scale = hyper.gradient_scale,
                 .skip = skip},
        scratch_(plan_.scratch_bytes() / sizeof(Vector)) {
    std::memset(scratch_.data(), 0xff, scratch_.size() * sizeof(Vector));
  }

  const MuonStepPlan& plan() const { return plan_; }
  MuonStepScalars& scalars() { return scalars_; }
  MuonStepLaunch launch() {
    return {.table = plan_.table().data(),
            .scalars = &scalars_,
            .scratch = reinterpret_cast<std::byte*>(scratch_.data())};
  }

  // "scratch", "table", "scalars"; and "weightI", "momentumI", "gradientI" of each weight.
  template <typename G>
  void AddRegions(const std::vector<MuonWeight<G>>& weights, emulation::Session& session) const {
    using emulation::Access;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      session.AddRows(absl::StrCat("weight", i), weights[i].weight);
      session.AddRows(absl::StrCat("momentum", i), weights[i].momentum);
      session.AddRows(absl::StrCat("gradient", i), weights[i].gradient);
    }
    session.AddRegion("scalars", &scalars_, sizeof(scalars_), Access::kRead);
    if (plan_.table().empty()) return;
    session.AddRegion("table", plan_.table().data(),
                      static_cast<std::int64_t>(plan_.table().size()), Access::kRead);
    session.AddRegion("scratch", scratch_.data(), plan_.scratch_bytes(), Access::kReadWrite);
  }

 private:
  struct alignas(16) Vector {
    std::byte bytes[16];
  };

  MuonStepPlan plan_;
  MuonStepScalars scalars_;
  std::vector<Vector> scratch_;
};

// One step of `weights`, in place.
template <typename G>
absl::Status StepEmulated(const MuonHyperparameters& hyper, std::vector<TestWeight<G>>& weights,
                          const EmulatedOptions& options = {}) {
  const std::vector<MuonWeight<G>> views = ViewsOf(weights);
  HW_ASSIGN_OR_RETURN(MuonStepPlan plan,
                      MuonStepPlan::Create<G>(hyper, views, options.mode, options.chain));
  EmulatedStep step(std::move(plan), hyper, options.skip);
  emulation::Session session(options.emulation);
  step.AddRegions(views, session);
  HW_RETURN_IF_ERROR(cuda_emulated::MuonStep(step.plan(), step.launch()));
  EXPECT_EQ(session.launches().size(), step.plan().launches());
  return session.status();
}

// The emulated kernels leave the reference's weights and momentum, and nothing else.
template <typename G>
void ExpectEmulatedParity(const MuonHyperparameters& hyper,
                          const std::vector<TestWeight<G>>& weights, const std::string& what,
                          const EmulatedOptions& options = {}) {
  std::vector<TestWeight<G>> expected = weights, actual = weights;
  const absl::Status reference = MuonStepReference<G>(hyper, ViewsOf(expected));
  ASSERT_TRUE(reference.ok()) << what << ": " << reference;
  const absl::Status status = StepEmulated(hyper, actual, options);
  ASSERT_TRUE(status.ok()) << what << ": " << status;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string which = absl::StrCat(what, ", weight ", i);
    ExpectSameBits<float>(actual[i].momentum.view(), expected[i].momentum.view(),
                          which + ", momentum");
    ExpectSameBits<float>(actual[i].weight.view(), expected[i].weight.view(), which);
    ExpectSameBits<G>(actual[i].gradient.view(), weights[i].gradient.view(), which + ", gradient");
    actual[i].weight.ExpectGapsUntouched();
    actual[i].momentum.ExpectGapsUntouched();
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_EMULATED_STEP_H_
