// The CUDA kernels, emulated, have the bits of swiglu.h's CPU kernels: on odd sizes, layouts and
// values, in three thread orders, with every buffer a region whose gaps are out of bounds.
#include "kernels/common/testing/emulated.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/emulation/emulation.h"
#include "kernels/swiglu/cuda.h"
#include "kernels/swiglu/swiglu.h"

namespace headwise {
namespace {

constexpr Swiglu kForms[] = {{}, {.clamped = true, .alpha = 1.702, .limit = 1.25}};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kStrided, Layout::kAligned};

template <typename T>
struct Matrices {
  Matrices(std::int64_t rows, std::int64_t width, Layout layout, bool specials)
      : gate(rows, width, layout), up(gate), dout(gate), out(gate), dgate(gate), dup(gate) {
    std::uint64_t seed = 1000 * rows + width;
    for (TestMatrix<T>* m : {&gate, &up, &dout}) {
      specials ? FillWithSpecials(*m, ++seed, 3.0) : Fill(*m, ++seed, 3.0);
    }
    if (rows > 0 && width > 1) {  // at the limits the gradient passes
      gate.at(0, 0) = up.at(0, 1) = Narrow<T>(1.25f);
      up.at(0, 0) = Narrow<T>(-1.25f);
    }
  }

  TestMatrix<T> gate, up, dout, out, dgate, dup;
};

template <typename T>
void ExpectCpuBits(const Swiglu& op, const Matrices<T>& m,
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  ThreadPool pool(1);
  Matrices<T> expected = m;
  SwigluForward<T>(op, m.gate.view(), m.up.view(), expected.out.span(), pool);
  SwigluBackward<T>(op, m.gate.view(), m.up.view(), m.dout.view(), expected.dgate.span(),
                    expected.dup.span(), pool);
  for (const emulation::Options& order : orders) {
    Matrices<T> actual = m;
    emulation::Session session(order);
    AddMatrix(session, "gate", m.gate.view());
    AddMatrix(session, "up", m.up.view());
    AddMatrix(session, "dout", m.dout.view());
    AddMatrix(session, "out", actual.out.span());
    AddMatrix(session, "dgate", actual.dgate.span());
    AddMatrix(session, "dup", actual.dup.span());
    ASSERT_EQ(
        cuda_emulated::SwigluForward<T>(op, m.gate.view(), m.up.view(), actual.out.span(), nullptr),
        absl::OkStatus());
    ASSERT_EQ(cuda_emulated::SwigluBackward<T>(op, m.gate.view(), m.up.view(), m.dout.view(),
                                               actual.dgate.span(), actual.dup.span(), nullptr),
              absl::OkStatus());
    const std::string what = std::string(op.clamped ? "clamped" : "plain") + ", order " +
                             std::to_string(static_cast<int>(order.order));
    ExpectSameBits<T>(actual.out.view(), expected.out.view(), "out, " + what);
    ExpectSameBits<T>(actual.dgate.view(), expected.dgate.view(), "dgate, " + what);
    ExpectSameBits<T>(actual.dup.view(), expected.dup.view(), "dup, " + what);
    for (const TestMatrix<T>* output : {&actual.out, &actual.dgate, &actual.dup}) {
      output->ExpectGapsUntouched();
    }
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedSwiglu : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedSwiglu, StorageTypes);

TYPED_TEST(EmulatedSwiglu, HasTheCpusBits) {
  for (const Swiglu& op : kForms) {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t rows : {0, 1, 2, 63, 64, 65, 257}) {
        ExpectCpuBits(op, Matrices<TypeParam>(rows, 9, layout, /*specials=*/false));
      }
      for (const std::int64_t width : {0, 1, 2, 7, 8, 16, 63, 257, 1040}) {
        ExpectCpuBits(op, Matrices<TypeParam>(3, width, layout, /*specials=*/false));
      }
    }
  }
}

TYPED_TEST(EmulatedSwiglu, HasTheCpusBitsOnSpecialValues) {
  for (const Swiglu& op : kForms) {
    for (const Layout layout : kLayouts) {
      ExpectCpuBits(op, Matrices<TypeParam>(70, 40, layout, /*specials=*/true));
    }
  }
}

TYPED_TEST(EmulatedSwiglu, ForSanitizersHasTheCpusBits) {
  for (const Swiglu& op : kForms) {
    for (const Layout layout : kLayouts) {
      ExpectCpuBits(op, Matrices<TypeParam>(7, 19, layout, /*specials=*/true),
                    absl::MakeConstSpan(kThreadOrders).subspan(2));
    }
  }
}

TYPED_TEST(EmulatedSwiglu, OutputsMayTakeTheirInputsPlace) {
  using T = TypeParam;
  for (const Swiglu& op : kForms) {
    Matrices<T> m(5, 37, Layout::kStrided, /*specials=*/false), expected = m;
    ThreadPool pool(1);
    SwigluBackward<T>(op, m.gate.view(), m.up.view(), m.dout.view(), expected.dgate.span(),
                      expected.dup.span(), pool);
    ASSERT_EQ(cuda_emulated::SwigluBackward<T>(op, m.gate.view(), m.up.view(), m.dout.view(),
                                               m.up.span(), m.gate.span(), nullptr),
              absl::OkStatus());
    ExpectSameBits<T>(m.up.view(), expected.dgate.view(), "dgate in place of up");
    ExpectSameBits<T>(m.gate.view(), expected.dup.view(), "dup in place of the gate");
  }
}

// Halves of one packed projection: every element once, in 16-byte vectors and whole sectors.
TEST(EmulatedSwigluTraffic, IsEveryElementOnce) {
  constexpr std::int64_t kRows = 32, kWidth = 512, kBytes = kRows * kWidth * 2;
  SectorRows<BFloat16> packed(kRows, 2 * kWidth), out(kRows, kWidth);
  const RowSpan<BFloat16> both = packed.span();
  const RowSpan<const BFloat16> gate(both.data, kRows, kWidth, both.stride);
  const RowSpan<const BFloat16> up(both.data + kWidth, kRows, kWidth, both.stride);
  emulation::Session session({.count_traffic = true});
  AddMatrix(session, "gate", gate);
  AddMatrix(session, "up", up);
  AddMatrix(session, "out", out.span());
  ASSERT_EQ(cuda_emulated::SwigluForward<BFloat16>({}, gate, up, out.span(), nullptr),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 1);
  for (const char* name : {"gate", "up", "out"}) {
    const emulation::Traffic& traffic = session.traffic(name);
    EXPECT_EQ(traffic.loads + traffic.stores, kBytes) << name;
    EXPECT_EQ(traffic.narrowest, 16) << name;
    EXPECT_EQ(traffic.partly_used_sectors, 0) << name;
  }
}

TEST(EmulatedSwigluDeathTest, ProgrammersErrors) {
  Matrices<float> m(3, 8, Layout::kContiguous, /*specials=*/false);
  TestMatrix<float> wide(3, 9);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::SwigluForward<float>({}, m.gate.view(), m.up.view(),
                                                                     wide.span(), nullptr)),
               "8 vs 9");
  EXPECT_DEATH(
      static_cast<void>(cuda_emulated::SwigluForward<float>(
          {.clamped = true, .limit = 0}, m.gate.view(), m.up.view(), m.out.span(), nullptr)),
      "limit 0");
}

}  // namespace
}  // namespace headwise
