// A layer of experts on a GPU, from the router's logits to the sum over experts and back, and its
// balancing, has the bits of the CPU path with contract products.
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/balancing.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};
constexpr GemmBackend kContract = GemmBackend::kContract;
constexpr double kLossScale = 0.125;

struct Case {
  std::int64_t tokens, experts, chosen, width, hidden;
  RouterScore score = RouterScore::kSigmoid;
  bool normalize = true;
  Layout layout = Layout::kContiguous;
  bool specials = false;  // among activations
};

// Everything that is computed. Gradients of outputs are inputs (Operands).
template <typename T>
struct Results {
  explicit Results(const Case& c)
      : experts(c.tokens, c.chosen),
        weights(c.tokens, c.chosen),
        dweights(weights),
        dlogits(c.tokens, c.experts),
        rows(c.tokens * c.chosen, c.width, c.layout),
        hidden(c.tokens * c.chosen, c.hidden, c.layout),
        doutputs(hidden),
        drows(rows),
        y(c.tokens, c.hidden, c.layout),
        dx(c.tokens, c.width, c.layout),
        dw(c.experts * c.hidden, c.width),
        dbias(c.experts, c.hidden),
        offsets(c.experts + 1),
        row_of(c.tokens * c.chosen),
        loads(c.experts),
        selection_bias(c.experts, 0.25f),
        loss(1, 0.5) {}

  void ExpectSame(const Results& expected) const {
    EXPECT_EQ(offsets, expected.offsets);
    EXPECT_EQ(row_of, expected.row_of);
    EXPECT_EQ(loads, expected.loads);
    EXPECT_EQ(selection_bias, expected.selection_bias);
    EXPECT_TRUE(SameBits(loss[0], expected.loss[0])) << loss[0] << " " << expected.loss[0];
    for (std::int64_t t = 0; t < experts.rows(); ++t) {
      for (std::int64_t j = 0; j < experts.width(); ++j) {
        ASSERT_EQ(experts.at(t, j), expected.experts.at(t, j)) << "token " << t;
      }
    }
    const auto same = [](const auto& actual, const auto& wanted, const char* what) {
      ExpectSameBits(actual.view(), wanted.view(), what);
      actual.ExpectGapsUntouched();
    };
    same(weights, expected.weights, "weights");
    same(dweights, expected.dweights, "dweights");
    same(dlogits, expected.dlogits, "dlogits");
    same(rows, expected.rows, "rows");
    same(hidden, expected.hidden, "expert outputs");
    same(doutputs, expected.doutputs, "doutputs");
    same(drows, expected.drows, "drows");
    same(y, expected.y, "y");
    same(dx, expected.dx, "dx");
    same(dw, expected.dw, "dw");
    same(dbias, expected.dbias, "dbias");
  }

  TestMatrix<std::int32_t> experts;
  TestMatrix<float> weights, dweights, dlogits;
  TestMatrix<T> rows, hidden, doutputs, drows, y, dx;
  TestMatrix<float> dw, dbias;
  std::vector<std::int64_t> offsets, row_of;
  std::vector<float> loads, selection_bias;
  std::vector<double> loss;
};

template <typename T>
struct Operands {
  explicit Operands(const Case& c)
      : logits(MatrixOf<float>({c.tokens, c.experts}, 1)),
        x(MatrixOf<T>({c.tokens, c.width, c.layout, c.specials}, 2)),
        w(MatrixOf<T>({c.experts * c.hidden, c.width, c.layout}, 3)),
        bias(MatrixOf<float>({c.experts, c.hidden}, 4)),
        dy(MatrixOf<T>({c.tokens, c.hidden, c.layout, c.specials}, 5)),
        op{.chosen = c.chosen,
           .score = c.score,
           .normalize = c.normalize,
           .scale = 1.5,
           .multiplier = 0.75} {}

  TestMatrix<float> logits;
  TestMatrix<T> x, w;
  TestMatrix<float> bias;
  TestMatrix<T> dy;
  Router op;
};

template <typename T>
void OnCpu(const Operands<T>& in, Results<T>& r) {
  ThreadPool& pool = CpuThreads();
  const auto experts = static_cast<std::int64_t>(r.loads.size()), tokens = in.x.rows();
  RouterForward<float>(in.op, in.logits.view(), absl::MakeConstSpan(r.selection_bias),
                       r.experts.span(), r.weights.span(), pool);
  const ExpertGroups groups = GroupByExpert(r.experts.view(), experts);
  r.offsets = groups.offsets;
  r.row_of = groups.row_of;
  DispatchForward<T>(groups, in.x.view(), r.rows.span(), pool);
  GroupedLinearForward<T, T>(kContract, groups.offsets, r.rows.view(), in.w.view(), in.bias.view(),
                             r.hidden.span(), pool);
  CombineForward<T>(groups, r.weights.view(), r.hidden.view(), r.y.span(), pool);
  CombineBackward<T>(groups, r.weights.view(), r.hidden.view(), in.dy.view(), r.doutputs.span(),
                     r.dweights.span(), pool);
  GroupedLinearBackwardBias<T>(groups.offsets, r.doutputs.view(), r.dbias.span(), pool);
  GroupedLinearBackwardWeight<T>(kContract, groups.offsets, r.doutputs.view(), r.rows.view(),
                                 r.dw.span(), pool);
  GroupedLinearBackwardInput<T, T>(kContract, groups.offsets, r.doutputs.view(), in.w.view(),
                                   r.drows.span(), pool);
  DispatchBackward<T>(groups, r.drows.view(), r.dx.span(), pool);
  RouterBackward<float>(in.op, in.logits.view(), r.experts.view(), r.dweights.view(),
                        r.dlogits.span(), pool);
  std::vector<std::int64_t> counts(experts);
  CountChoices(r.experts.view(), absl::MakeSpan(counts));
  for (std::int64_t e = 0; e < experts; ++e) r.loads[e] = static_cast<float>(counts[e]);
  std::vector<float> sums(experts);
  SumProbabilities<float>(in.logits.view(), absl::MakeSpan(sums), pool);
  r.loss[0] += 0.01 * LoadBalancingLoss<float>(counts, sums, tokens);
  LoadBalancingBackward<float>(in.logits.view(), counts, tokens,
                               kLossScale * 0.01 * static_cast<double>(tokens), r.dlogits.span(),
                               pool);
  UpdateSelectionBias(counts, 0.001f, absl::MakeSpan(r.selection_bias));
}

template <typename T>
void ExpectCpuBits(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.chosen << " of " << c.experts
                                  << " experts, " << c.width << " -> " << c.hidden);
  const Operands<T> in(c);
  Results<T> actual(c), expected(c);
  OnCpu(in, expected);

  OnDevice device;
  const RowSpan<const float> logits = device.In(in.logits), bias = device.In(in.bias);
  const RowSpan<const T> x = device.In(in.x), w = device.In(in.w), dy = device.In(in.dy);
  Results<T>& r = actual;
  const RowSpan<std::int32_t> experts = device.Out(r.experts);
  const RowSpan<float> weights = device.Out(r.weights), dweights = device.Out(r.dweights),
                       dlogits = device.Out(r.dlogits), dw = device.Out(r.dw),
                       dbias = device.Out(r.dbias);
  const RowSpan<T> rows = device.Out(r.rows), hidden = device.Out(r.hidden),
                   doutputs = device.Out(r.doutputs), drows = device.Out(r.drows),
                   y = device.Out(r.y), dx = device.Out(r.dx);
  const auto offsets = device.Out(r.offsets), row_of = device.Out(r.row_of);
  const auto loads = device.Out(r.loads), selection_bias = device.Out(r.selection_bias);
  double* const loss = device.Out(r.loss).data();
  const double* const loss_scale = device.In(absl::MakeConstSpan(&kLossScale, 1)).data();
  auto* const group_scratch =
      device.Scratch<std::int32_t>(GroupByExpertScratch(c.tokens * c.chosen, c.experts));
  auto* const loss_scratch = device.Scratch<float>(LoadBalancingLossScratch(c.tokens, c.experts));
  std::uint64_t* const fault = device.Fault();
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    const KernelLaunchers& k = Kernels();
    const StorageLaunchers<T>& t = Kernels<T>();
    HW_RETURN_IF_ERROR(k.RouterForward(in.op, logits, selection_bias, experts, weights, stream));
    HW_RETURN_IF_ERROR(k.GroupByExpert(experts, offsets, row_of, group_scratch, fault, stream));
    HW_RETURN_IF_ERROR(t.DispatchForward(row_of, x, rows, stream));
    HW_RETURN_IF_ERROR(t.GroupedLinearForward(offsets, rows, w, bias, hidden, stream));
    HW_RETURN_IF_ERROR(t.CombineForward(row_of, weights, hidden, y, stream));
    HW_RETURN_IF_ERROR(t.CombineBackward(row_of, weights, hidden, dy, doutputs, dweights, stream));
    HW_RETURN_IF_ERROR(t.GroupedLinearBackwardBias(offsets, doutputs, dbias, stream));
    HW_RETURN_IF_ERROR(t.GroupedLinearBackwardWeight(offsets, doutputs, rows, dw, stream));
    HW_RETURN_IF_ERROR(t.GroupedLinearBackwardInput(offsets, doutputs, w, drows, stream));
    HW_RETURN_IF_ERROR(t.DispatchBackward(row_of, drows, dx, stream));
    HW_RETURN_IF_ERROR(k.RouterBackward(in.op, logits, experts, dweights, dlogits, fault, stream));
    HW_RETURN_IF_ERROR(k.CountLoads(offsets, loads, stream));
    HW_RETURN_IF_ERROR(
        k.LoadBalancingLoss(logits, loads, c.tokens, 0.01, loss, loss_scratch, stream));
    HW_RETURN_IF_ERROR(
        k.LoadBalancingBackward(logits, loads, c.tokens, 0.01, loss_scale, dlogits, stream));
    return k.UpdateSelectionBias(loads, 0.001f, /*skip=*/nullptr, selection_bias, stream);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  EXPECT_EQ(device.fault(), kNone);
  actual.ExpectSame(expected);
}

void ExpectCpuBits(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    ExpectCpuBits<float>(c);
    ExpectCpuBits<BFloat16>(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuMoe, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{21, 5, 2, 19, 10, RouterScore::kSigmoid, true, Layout::kStrided, true},
                 {66, 4, 1, 16, 8, RouterScore::kSoftmax, false}});
}

TEST(GpuMoe, HasTheCpusBits) {
  ExpectCpuBits({{1, 256, 8, 512, 256},
                 {1031, 32, 4, 260, 515, RouterScore::kSoftmax, true, Layout::kStrided},
                 {515, 16, 2, 128, 256, RouterScore::kSigmoid, true, Layout::kAligned, true}});
}

TEST(GpuLargeMoe, HasTheCpusBits) { ExpectCpuBits({{2049, 64, 8, 512, 256}}); }

}  // namespace
}  // namespace headwise
