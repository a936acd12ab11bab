// The CUDA kernels of grouped linear layers, emulated, have the bits of the CPU's contract products:
// odd sizes, layouts and values, experts without rows and with all of them, in three thread orders,
// with every buffer a region whose gaps are out of bounds.
//
// Break it to believe it: multiply a whole stage where the depth ends within it, let a tile run on
// into the next expert's rows, launch a tile of rows fewer, or leave out the padding of the bias's
// tree.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/emulated.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/grouped_linear.h"

namespace headwise {
namespace {

// offsets of experts with these numbers of rows.
std::vector<std::int64_t> Offsets(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

template <typename T>
struct Linear {
  Linear(const std::vector<std::int64_t>& counts, std::int64_t n, std::int64_t k, Layout layout,
         bool specials)
      : offsets(Offsets(counts)),
        x(offsets.back(), k, layout),
        dy(offsets.back(), n, layout),
        w(static_cast<std::int64_t>(counts.size()) * n, k, layout),
        y(dy),
        dx(x),
        bias(static_cast<std::int64_t>(counts.size()), n, layout),
        dbias(bias),
        dw(w.rows(), k, layout) {
    int seed = 0;
    for (TestMatrix<T>* m : {&x, &dy, &w}) {
      specials ? FillWithSpecials(*m, ++seed) : Fill(*m, ++seed);
    }
    Fill(bias, 4);
    Fill(dw, 5);  // overwritten
  }
  absl::Status Run(bool with_bias, emulation::Session& session) {
    AddArray(session, "offsets", absl::MakeConstSpan(offsets));
    AddMatrix(session, "x", x.view());
    AddMatrix(session, "dy", dy.view());
    AddMatrix(session, "w", w.view());
    AddMatrix(session, "bias", bias.view());
    AddMatrix(session, "y", y.span());
    AddMatrix(session, "dx", dx.span());
    AddMatrix(session, "dw", dw.span());
    AddMatrix(session, "dbias", dbias.span());
    absl::Status status;
    status.Update(cuda_emulated::GroupedLinearForward<T>(
        offsets, x.view(), w.view(), with_bias ? bias.view() : RowSpan<const float>(), y.span(),
        nullptr));
    status.Update(cuda_emulated::GroupedLinearBackwardInput<T>(offsets, dy.view(), w.view(),
                                                               dx.span(), nullptr));
    status.Update(cuda_emulated::GroupedLinearBackwardWeight<T>(offsets, dy.view(), x.view(),
                                                                dw.span(), nullptr));
    status.Update(
        cuda_emulated::GroupedLinearBackwardBias<T>(offsets, dy.view(), dbias.span(), nullptr));
    return status;
  }
  void RunOnCpu(bool with_bias) {
    constexpr GemmBackend kContract = GemmBackend::kContract;
    ThreadPool pool(1);
    GroupedLinearForward<T, T>(kContract, offsets, x.view(), w.view(),
                               with_bias ? bias.view() : RowSpan<const float>(), y.span(), pool);
    GroupedLinearBackwardInput<T, T>(kContract, offsets, dy.view(), w.view(), dx.span(), pool);
    GroupedLinearBackwardWeight<T>(kContract, offsets, dy.view(), x.view(), dw.span(), pool);
    GroupedLinearBackwardBias<T>(offsets, dy.view(), dbias.span(), pool);
  }

  std::vector<std::int64_t> offsets;
  TestMatrix<T> x, dy, w, y, dx;
  TestMatrix<float> bias, dbias, dw;
};

template <typename T>
void ExpectCpuBits(
    const std::vector<std::int64_t>& counts, std::int64_t n, std::int64_t k,
    Layout layout = Layout::kStrided, bool specials = false,
    absl::Span<const emulation::Options> orders = absl::MakeConstSpan(kThreadOrders).subspan(2)) {
  const Linear<T> problem(counts, n, k, layout, specials);
  const bool with_bias = (n + k) % 2 == 1;
  Linear<T> expected = problem;
  expected.RunOnCpu(with_bias);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message()
                 << problem.x.rows() << " rows, " << counts.size() << " experts, " << n << " x "
                 << k << ", order " << static_cast<int>(order.order));
    Linear<T> actual = problem;
    emulation::Session session(order);
    ASSERT_EQ(actual.Run(with_bias, session), absl::OkStatus());
    ExpectSameBits<T>(actual.y.view(), expected.y.view(), "y");
    ExpectSameBits<T>(actual.dx.view(), expected.dx.view(), "dx");
    ExpectSameBits<float>(actual.dw.view(), expected.dw.view(), "dw");
    ExpectSameBits<float>(actual.dbias.view(), expected.dbias.view(), "dbias");
    actual.y.ExpectGapsUntouched();
    actual.dx.ExpectGapsUntouched();
    actual.dw.ExpectGapsUntouched();
    actual.dbias.ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedGroupedLinear : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedGroupedLinear, StorageTypes);

TYPED_TEST(EmulatedGroupedLinear, HasTheCpusBitsForAnyNumberOfRows) {
  ExpectCpuBits<TypeParam>({5, 0, 1, 64}, 20, 33, Layout::kStrided, false, kThreadOrders);
  ExpectCpuBits<TypeParam>({63, 65, 2}, 9, 18);
  ExpectCpuBits<TypeParam>({0, 257, 0}, 8, 16);
  ExpectCpuBits<TypeParam>({0, 0, 0}, 8, 16);
  ExpectCpuBits<TypeParam>({1}, 8, 16);
  ExpectCpuBits<TypeParam>({1100}, 3, 5);  // 18 leaves of the bias's tree, padded to 32: 4 a warp
}

// As many tiles as there can be, and many experts to look through.
TYPED_TEST(EmulatedGroupedLinear, FindsEveryTile) {
  ExpectCpuBits<TypeParam>({65, 1, 129}, 4, 4);
  std::vector<std::int64_t> counts(70, 0);
  for (const int e : {1, 31, 32, 40, 69}) counts[e] = 65;
  ExpectCpuBits<TypeParam>(counts, 4, 4);
  ExpectCpuBits<TypeParam>(std::vector<std::int64_t>(64, 1), 4, 4);
}

TYPED_TEST(EmulatedGroupedLinear, HasTheCpusBitsForAnyWidth) {
  for (const auto& [n, k] : {std::pair{1, 17}, {65, 15}, {16, 65}, {64, 130}, {20, 0}, {0, 5}}) {
    ExpectCpuBits<TypeParam>({7, 3}, n, k, Layout::kContiguous);
    ExpectCpuBits<TypeParam>({7, 3}, n, k, Layout::kAligned);
  }
}

TYPED_TEST(EmulatedGroupedLinear, HasTheCpusBitsOfAwkwardValues) {
  ExpectCpuBits<TypeParam>({40, 0, 30}, 21, 36, Layout::kStrided, /*specials=*/true);
}

TYPED_TEST(EmulatedGroupedLinear, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits<TypeParam>({3, 0, 2}, 5, 18);
}

TYPED_TEST(EmulatedGroupedLinear, KeepsTheSignOfChainsThatUnderflow) {
  using T = TypeParam;
  Linear<T> p({2}, 3, 17, Layout::kContiguous, /*specials=*/false);
  for (TestMatrix<T>* m : {&p.x, &p.w}) {
    for (std::int64_t r = 0; r < m->rows(); ++r) {
      for (int i = 0; i < 17; ++i) m->at(r, i) = Narrow<T>(m == &p.x ? -1e-30f : 1e-30f);
    }
  }
  Linear<T> expected = p;
  expected.RunOnCpu(/*with_bias=*/false);
  ASSERT_TRUE(SameBits(expected.y.at(0, 0), Narrow<T>(-0.0f)));
  emulation::Session session(kThreadOrders[2]);
  ASSERT_EQ(p.Run(/*with_bias=*/false, session), absl::OkStatus());
  ExpectSameBits<T>(p.y.view(), expected.y.view(), "y");
}

TEST(EmulatedGroupedLinearDeathTest, ProgrammersErrors) {
  Linear<float> p({2, 3}, 4, 8, Layout::kContiguous, /*specials=*/false);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::GroupedLinearForward<float>(
                   absl::MakeConstSpan(p.offsets).first(2), p.x.view(), p.w.view(), {}, p.y.span(),
                   nullptr)),
               "experts times out_features");
  EXPECT_DEATH(static_cast<void>(cuda_emulated::GroupedLinearBackwardInput<float>(
                   p.offsets, p.x.view(), p.w.view(), p.dx.span(), nullptr)),
               "experts times out_features");
}

}  // namespace
}  // namespace headwise
