// The CUDA kernels of router and balancing, emulated, have the bits of the CPU's: every mode, odd
// sizes, layouts and values, in three thread orders, with every buffer a region whose gaps are out
// of bounds; and experts out of range are found.
//
// Break it to believe it: let Before() take `>=`, leave out the branch for NaN keys, sum chosen
// scores by the warp's tree, or start the chain of LoadBalancingLoss at the last expert.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/emulated.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/moe/balancing.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/router.h"
#include "kernels/moe/router_problem.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

std::vector<Router> Modes(std::int64_t chosen) {
  std::vector<Router> modes;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {true, false}) {
      modes.push_back({.chosen = chosen, .score = score, .normalize = normalize});
      modes.push_back({.chosen = chosen,
                       .score = score,
                       .normalize = normalize,
                       .scale = 2.5,
                       .multiplier = 0.7});
    }
  }
  return modes;
}

void ExpectCpuBits(const Problem<float>& problem,
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  Problem<float> expected = problem;
  ThreadPool pool(1);
  expected.Forward(pool);
  expected.Backward(pool);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message()
                 << problem.z.rows() << " x " << problem.z.width() << ", " << problem.op.chosen
                 << " chosen, sigmoid " << (problem.op.score == RouterScore::kSigmoid)
                 << ", normalize " << problem.op.normalize << ", biased "
                 << (problem.bias.width() > 0) << ", order " << static_cast<int>(order.order));
    Problem<float> actual = problem;
    std::uint64_t bad = kNone;
    emulation::Session session(order);
    AddMatrix(session, "logits", actual.z.view());
    AddMatrix(session, "bias", actual.bias.view());
    AddMatrix(session, "experts", actual.Experts());
    AddMatrix(session, "weights", actual.weights.span());
    AddMatrix(session, "dweights", actual.dweights.view());
    AddMatrix(session, "dlogits", actual.dz.span());
    ASSERT_EQ(cuda_emulated::RouterForward(
                  actual.op, actual.z.view(),
                  absl::MakeConstSpan(actual.bias.view().data, actual.bias.width()),
                  actual.Experts(), actual.weights.span(), nullptr),
              absl::OkStatus());
    ASSERT_EQ(
        cuda_emulated::RouterBackward(actual.op, actual.z.view(), actual.Experts(),
                                      actual.dweights.view(), actual.dz.span(), &bad, nullptr),
        absl::OkStatus());
    ASSERT_EQ(actual.experts, expected.experts);
    ExpectSameBits<float>(actual.weights.view(), expected.weights.view(), "weights");
    ExpectSameBits<float>(actual.dz.view(), expected.dz.view(), "dlogits");
    actual.weights.ExpectGapsUntouched();
    actual.dz.ExpectGapsUntouched();
    EXPECT_EQ(bad, kNone);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EmulatedRouter, HasTheCpusBitsInEveryMode) {
  for (const bool biased : {false, true}) {
    for (const std::int64_t experts : {1, 3, 8, 64, 65, 130}) {
      for (const std::int64_t chosen : {std::int64_t{1}, std::min<std::int64_t>(experts, 4)}) {
        for (const Router& op : Modes(chosen)) {
          ExpectCpuBits(Problem<float>(op, 6, experts, biased, Layout::kStrided),
                        absl::MakeConstSpan(kThreadOrders).subspan(2));
        }
      }
    }
  }
}

TEST(EmulatedRouter, HasTheCpusBitsForAnyNumberOfTokens) {
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257}) {
    const Router op = {.chosen = 3, .score = RouterScore::kSigmoid};
    ExpectCpuBits(Problem<float>(op, tokens, 8, /*biased=*/true));
  }
}

TEST(EmulatedRouter, HasTheCpusBitsWhenAllExpertsAreChosen) {
  for (const std::int64_t experts : {1, 3, 8, 64, 70}) {
    for (const Router& op : Modes(experts)) {
      ExpectCpuBits(Problem<float>(op, 2, experts, /*biased=*/true),
                    absl::MakeConstSpan(kThreadOrders).subspan(2));
    }
  }
}

// Ties, zeros of both signs, infinities and NaN in logits and bias.
TEST(EmulatedRouter, HasTheCpusBitsOfAwkwardLogits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const bool biased : {false, true}) {
    for (const Router& op : Modes(3)) {
      Problem<float> p(op, 40, 9, biased, Layout::kStrided);
      FillWithSpecials(p.z, 5, 3.0);
      FillWithSpecials(p.dweights, 6);
      for (int e = 0; e < 9; ++e) {
        p.z.at(0, e) = 1.5f;
        p.z.at(1, e) = e % 2 == 0 ? 0.0f : -0.0f;
        p.z.at(2, e) = std::numeric_limits<float>::quiet_NaN();
        p.z.at(3, e) = -kInfinity;
        p.z.at(4, e) = e % 3 == 0 ? kInfinity : 1.0f;
      }
      if (biased) FillWithSpecials(p.bias, 7);
      ExpectCpuBits(p, absl::MakeConstSpan(kThreadOrders).subspan(2));
    }
  }
}

// The largest keys fill shared memory beyond what a kernel has unasked.
TEST(EmulatedRouter, TakesManyExpertsAndRefusesMore) {
  ExpectCpuBits(Problem<float>({.chosen = 2}, 1, kMostCudaExperts, /*biased=*/false),
                absl::MakeConstSpan(kThreadOrders).subspan(2));
  Problem<float> p({.chosen = 2}, 1, kMostCudaExperts + 1, /*biased=*/false);
  EXPECT_EQ(
      cuda_emulated::RouterForward(p.op, p.z.view(), {}, p.Experts(), p.weights.span(), nullptr)
          .message(),
      "RouterForward: found 4097 experts, expected at most 4096 on CUDA");
}

TEST(EmulatedRouter, ForSanitizersHasTheCpusBits) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      ExpectCpuBits(Problem<float>({.chosen = 3, .score = score, .normalize = normalize}, 5, 40,
                                   /*biased=*/true, Layout::kStrided),
                    absl::MakeConstSpan(kThreadOrders).subspan(2));
    }
  }
}

TEST(EmulatedRouter, ExpertsOutOfRangeAreReportedAndTheirTokensLeftOut) {
  for (const std::int32_t wrong : {-1, 8, 2000000000}) {
    Problem<float> p({.chosen = 2}, 30, 8, /*biased=*/false);
    ThreadPool pool(1);
    p.Forward(pool);
    Problem<float> expected = p;
    expected.Backward(pool);
    p.experts[2 * 21] = p.experts[2 * 13 + 1] = wrong;
    for (const int t : {13, 21}) {
      for (int e = 0; e < 8; ++e) expected.dz.at(t, e) = p.dz.at(t, e);
    }
    std::uint64_t bad = kNone;
    emulation::Session session(kThreadOrders[2]);
    ASSERT_EQ(cuda_emulated::RouterBackward(p.op, p.z.view(), p.Experts(), p.dweights.view(),
                                            p.dz.span(), &bad, nullptr),
              absl::OkStatus());
    EXPECT_EQ(bad, 13);
    ExpectSameBits<float>(p.dz.view(), expected.dz.view(), "dlogits");
  }
}

// --- Balancing -----------------------------------------------------------------------------------

struct Balancing {
  Balancing(std::int64_t tokens, std::int64_t experts, Layout layout, bool specials)
      : logits(tokens, experts, layout), dlogits(tokens, experts, layout), counts(experts) {
    specials ? FillWithSpecials(logits, 1, 3.0) : Fill(logits, 1, 3.0);
    Fill(dlogits, 2);
    for (std::int64_t e = 0; e < experts; ++e) counts[e] = (e * e) % 7 * tokens / 3;
    loads.assign(counts.begin(), counts.end());
    scratch.assign(LoadBalancingLossScratch(tokens, experts), -1.0f);
  }
  void AddRegions(emulation::Session& session) {
    AddMatrix(session, "logits", logits.view());
    AddMatrix(session, "dlogits", dlogits.span());
    AddArray(session, "loads", absl::MakeConstSpan(loads));
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    AddArray(session, "total", absl::MakeSpan(&total, 1));
    AddArray(session, "loss_scale", absl::MakeConstSpan(&loss_scale, 1));
  }

  TestMatrix<float> logits, dlogits;
  std::vector<std::int64_t> counts;
  std::vector<float> loads, scratch;
  double total = 0.3;
  double loss_scale = 0.013;
};

void ExpectCpuBalancing(const Balancing& problem,
                        absl::Span<const emulation::Options> orders = kThreadOrders) {
  constexpr double kWeight = 1.7;
  const std::int64_t tokens = 2 * problem.logits.rows();
  Balancing expected = problem;
  ThreadPool pool(1);
  std::vector<float> sums(problem.counts.size());
  SumProbabilities<float>(expected.logits.view(), absl::MakeSpan(sums), pool);
  const double loss = LoadBalancingLoss<float>(expected.counts, sums, tokens);
  expected.total += kWeight * loss;
  LoadBalancingBackward<float>(expected.logits.view(), expected.counts, tokens,
                               expected.loss_scale * kWeight * static_cast<double>(tokens),
                               expected.dlogits.span(), pool);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message() << problem.logits.rows() << " x " << problem.logits.width()
                                    << ", order " << static_cast<int>(order.order));
    Balancing actual = problem;
    emulation::Session session(order);
    actual.AddRegions(session);
    ASSERT_EQ(cuda_emulated::LoadBalancingLoss(actual.logits.view(), actual.loads, tokens, kWeight,
                                               &actual.total, actual.scratch.data(), nullptr),
              absl::OkStatus());
    ASSERT_EQ(
        cuda_emulated::LoadBalancingBackward(actual.logits.view(), actual.loads, tokens, kWeight,
                                             &actual.loss_scale, actual.dlogits.span(), nullptr),
        absl::OkStatus());
    EXPECT_TRUE(SameBits(actual.total, expected.total)) << actual.total << " " << expected.total;
    ExpectSameBits<float>(actual.dlogits.view(), expected.dlogits.view(), "dlogits");
    actual.dlogits.ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EmulatedBalancing, HasTheCpusBits) {
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257}) {
    ExpectCpuBalancing(Balancing(tokens, 8, Layout::kStrided, /*specials=*/false));
  }
  for (const std::int64_t experts : {1, 3, 64, 300}) {
    ExpectCpuBalancing(Balancing(70, experts, Layout::kContiguous, /*specials=*/false),
                       absl::MakeConstSpan(kThreadOrders).subspan(2));
  }
  ExpectCpuBalancing(Balancing(130, 9, Layout::kStrided, /*specials=*/true));
}

TEST(EmulatedBalancing, ForSanitizersHasTheCpusBits) {
  ExpectCpuBalancing(Balancing(66, 5, Layout::kStrided, /*specials=*/false),
                     absl::MakeConstSpan(kThreadOrders).subspan(2));
}

TEST(EmulatedBalancing, MovesTheSelectionBiasAsTheCpuUnlessAStepIsSkipped) {
  for (const std::int64_t experts : {1, 3, 64, 300}) {
    const Balancing problem(30, experts, Layout::kContiguous, /*specials=*/false);
    std::vector<float> before(experts);
    for (std::int64_t e = 0; e < experts; ++e) before[e] = 0.01f * static_cast<float>(e % 5);
    std::vector<float> expected = before;
    UpdateSelectionBias(problem.counts, 1e-3f, absl::MakeSpan(expected));
    for (const emulation::Options& order : kThreadOrders) {
      for (const std::uint32_t skip : {0, 1}) {
        std::vector<float> actual = before;
        emulation::Session session(order);
        AddArray(session, "loads", absl::MakeConstSpan(problem.loads));
        AddArray(session, "bias", absl::MakeSpan(actual));
        AddArray(session, "skip", absl::MakeConstSpan(&skip, 1));
        ASSERT_EQ(cuda_emulated::UpdateSelectionBias(problem.loads, 1e-3f, &skip,
                                                     absl::MakeSpan(actual), nullptr),
                  absl::OkStatus());
        EXPECT_EQ(actual, skip == 0 ? expected : before);
      }
    }
  }
}

}  // namespace
}  // namespace headwise
