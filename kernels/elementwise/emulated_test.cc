// The CUDA kernels, emulated, have the bits of the CPU kernels: on odd sizes, layouts and values,
// in three thread orders, with every buffer a region whose gaps are out of bounds.
#include "kernels/common/testing/emulated.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual_gate.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

struct Shape {
  std::int64_t rows, width;
  Layout layout = Layout::kContiguous;
  bool specials = false;
};

std::string Name(const Shape& s) {
  return std::to_string(s.rows) + " x " + std::to_string(s.width) + ", layout " +
         std::to_string(static_cast<int>(s.layout)) + (s.specials ? ", special values" : "");
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided, Layout::kAligned}) {
    for (const std::int64_t rows : {0, 1, 2, 63, 64, 65, 257}) {
      shapes.push_back({rows, 16, layout});
      shapes.push_back({rows, 9, layout});
    }
    for (const std::int64_t width : {0, 1, 2, 7, 8, 15, 64, 257, 1040}) {
      shapes.push_back({3, width, layout});
    }
    shapes.push_back({70, 24, layout, /*specials=*/true});
    shapes.push_back({70, 13, layout, /*specials=*/true});
  }
  return shapes;
}

template <typename T>
TestMatrix<T> Matrix(const Shape& s, std::uint64_t seed, double scale = 2.0) {
  TestMatrix<T> m(s.rows, s.width, s.layout);
  s.specials ? FillWithSpecials(m, seed, scale) : Fill(m, seed, scale);
  return m;
}

template <typename T>
absl::Span<T> Row(TestMatrix<T>& m) {
  return {m.span().data, static_cast<std::size_t>(m.width())};
}

// The rows backwards; some go nowhere.
std::vector<std::int64_t> Destinations(std::int64_t rows) {
  std::vector<std::int64_t> destinations;
  for (std::int64_t t = 0; t < rows; ++t) {
    destinations.push_back(t % 5 == 3 ? (t % 2 == 0 ? -1 : rows) : rows - 1 - t);
  }
  return destinations;
}

// Inputs, gates of channels (aligned, or not) and poisoned outputs of every operation.
template <typename T>
struct Problem {
  explicit Problem(const Shape& s)
      : a(Matrix<T>(s, 1)),
        b(Matrix<T>(s, 2, 4.0)),
        d(Matrix<T>(s, 3, 0.1)),
        channels(Matrix<float>({1, s.width, s.layout, s.specials}, 4)),
        out(s.rows, s.width, s.layout),
        out2(out),
        sums(1, s.width, s.layout),
        converted(s.rows, s.width, s.layout),
        scratch(ResidualGateBackwardScratch(s.rows, s.width),
                std::numeric_limits<float>::quiet_NaN()),
        destinations(Destinations(s.rows)) {}

  void AddRegions(emulation::Session& session) {
    AddMatrix(session, "a", a.view());
    AddMatrix(session, "b", b.view());
    AddMatrix(session, "d", d.view());
    AddMatrix(session, "channels", channels.view());
    AddMatrix(session, "out", out.span());
    AddMatrix(session, "out2", out2.span());
    AddMatrix(session, "sums", sums.span());
    AddMatrix(session, "converted", converted.span());
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    AddArray(session, "destinations", absl::MakeConstSpan(destinations));
  }
  void ExpectSame(const Problem& expected, const std::string& what) const {
    ExpectSameBits<T>(out.view(), expected.out.view(), what + ": out");
    ExpectSameBits<T>(out2.view(), expected.out2.view(), what + ": second output");
    ExpectSameBits<float>(sums.view(), expected.sums.view(), what + ": sums");
    ExpectSameBits<float>(converted.view(), expected.converted.view(), what + ": converted");
    out.ExpectGapsUntouched();
    out2.ExpectGapsUntouched();
    sums.ExpectGapsUntouched();
    converted.ExpectGapsUntouched();
  }

  TestMatrix<T> a, b, d;
  TestMatrix<float> channels;
  TestMatrix<T> out, out2;
  TestMatrix<float> sums, converted;
  std::vector<float> scratch;
  std::vector<std::int64_t> destinations;
};

constexpr ResidualGate kGates[] = {{}, {.temperature = 0.5, .epsilon = 0.3}};

// on_cpu(problem) and emulated(problem) -> absl::Status, for every shape, or one, and every order.
template <typename T, typename OnCpu, typename Emulated>
void ExpectCpuBits(const OnCpu& on_cpu, const Emulated& emulated,
                   const std::vector<Shape>& shapes = Shapes(),
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  for (const Shape& shape : shapes) {
    Problem<T> expected(shape);
    on_cpu(expected);
    for (const emulation::Options& order : orders) {
      Problem<T> actual(shape);
      emulation::Session session(order);
      actual.AddRegions(session);
      ASSERT_EQ(emulated(actual), absl::OkStatus()) << Name(shape);
      actual.ExpectSame(expected,
                        Name(shape) + ", order " + std::to_string(static_cast<int>(order.order)));
      if (testing::Test::HasFailure()) return;
    }
  }
}

template <typename T>
class EmulatedElementwise : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedElementwise, StorageTypes);

TYPED_TEST(EmulatedElementwise, AddHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>([&](Problem<T>& p) { Add<T>(p.a.view(), p.b.view(), p.out.span(), pool); },
                   [&](Problem<T>& p) {
                     return cuda_emulated::Add<T>(p.a.view(), p.b.view(), p.out.span(), nullptr);
                   });
}

TYPED_TEST(EmulatedElementwise, AddBiasHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>(
      [&](Problem<T>& p) { AddBias<T>(p.a.view(), Row(p.channels), p.out.span(), pool); },
      [&](Problem<T>& p) {
        return cuda_emulated::AddBias<T>(p.a.view(), Row(p.channels), p.out.span(), nullptr);
      });
}

TYPED_TEST(EmulatedElementwise, TheSigmoidGateHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>(
      [&](Problem<T>& p) { SigmoidGateForward<T>(p.a.view(), p.b.view(), p.out.span(), pool); },
      [&](Problem<T>& p) {
        return cuda_emulated::SigmoidGateForward<T>(p.a.view(), p.b.view(), p.out.span(), nullptr);
      });
  ExpectCpuBits<T>(
      [&](Problem<T>& p) {
        SigmoidGateBackward<T>(p.a.view(), p.b.view(), p.d.view(), p.out.span(), p.out2.span(),
                               pool);
      },
      [&](Problem<T>& p) {
        return cuda_emulated::SigmoidGateBackward<T>(p.a.view(), p.b.view(), p.d.view(),
                                                     p.out.span(), p.out2.span(), nullptr);
      });
}

TYPED_TEST(EmulatedElementwise, ConvertHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>([&](Problem<T>& p) { Convert<T, float>(p.a.view(), p.converted.span(), pool); },
                   [&](Problem<T>& p) {
                     return cuda_emulated::Convert<T, float>(p.a.view(), p.converted.span(),
                                                             nullptr);
                   });
  // The other way, of values that bf16 does not have.
  for (const Shape& shape : Shapes()) {
    const TestMatrix<float> in = Matrix<float>(shape, 5);
    TestMatrix<BFloat16> expected(shape.rows, shape.width, shape.layout), actual(expected);
    Convert<float, BFloat16>(in.view(), expected.span(), pool);
    emulation::Session session;
    AddMatrix(session, "in", in.view());
    AddMatrix(session, "out", actual.span());
    ASSERT_EQ((cuda_emulated::Convert<float, BFloat16>(in.view(), actual.span(), nullptr)),
              absl::OkStatus());
    ExpectSameBits<BFloat16>(actual.view(), expected.view(), Name(shape));
    actual.ExpectGapsUntouched();
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(EmulatedElementwise, ScatterRowsHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>(
      [&](Problem<T>& p) { ScatterRows<T>(p.a.view(), p.destinations, p.out.span(), pool); },
      [&](Problem<T>& p) {
        return cuda_emulated::ScatterRows<T>(p.a.view(), p.destinations, p.out.span(), nullptr);
      });
}

TEST(EmulatedScatterRows, KeepsANanThatNoConversionMakes) {
  const std::vector<std::int64_t> destinations = {0};
  for (const std::int64_t width : {8, 7}) {
    const std::vector<BFloat16> in(8, BFloat16{0xffc1});
    std::vector<BFloat16> out(8, BFloat16{0});
    ASSERT_EQ(cuda_emulated::ScatterRows<BFloat16>(
                  RowSpan<const BFloat16>(in.data(), 1, width), destinations,
                  RowSpan<BFloat16>(out.data(), 1, width), nullptr),
              absl::OkStatus());
    for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(out[i].bits, i < width ? 0xffc1 : 0) << i;
  }
}

// Both directions, and what they are compared with.
template <typename T>
void GateForward(const ResidualGate& op, const std::vector<Shape>& shapes,
                 absl::Span<const emulation::Options> orders = kThreadOrders) {
  ThreadPool pool(1);
  ExpectCpuBits<T>(
      [&](Problem<T>& p) {
        ResidualGateForward<T>(op, p.a.view(), p.b.view(), Row(p.channels), p.out.span(), pool);
      },
      [&](Problem<T>& p) {
        return cuda_emulated::ResidualGateForward<T>(op, p.a.view(), p.b.view(), Row(p.channels),
                                                     p.out.span(), nullptr);
      },
      shapes, orders);
}
template <typename T>
void GateBackward(const ResidualGate& op, const std::vector<Shape>& shapes,
                  absl::Span<const emulation::Options> orders = kThreadOrders) {
  ThreadPool pool(1);
  ExpectCpuBits<T>(
      [&](Problem<T>& p) {
        ResidualGateBackward<T>(op, p.a.view(), p.b.view(), Row(p.channels), p.d.view(),
                                p.out.span(), p.out2.span(), Row(p.sums), pool);
      },
      [&](Problem<T>& p) {
        return cuda_emulated::ResidualGateBackward<T>(op, p.a.view(), p.b.view(), Row(p.channels),
                                                      p.d.view(), p.out.span(), p.out2.span(),
                                                      Row(p.sums), p.scratch.data(), nullptr);
      },
      shapes, orders);
}

TYPED_TEST(EmulatedElementwise, TheResidualGateHasTheCpusBits) {
  for (const ResidualGate& op : kGates) {
    GateForward<TypeParam>(op, Shapes());
    GateBackward<TypeParam>(op, Shapes());
  }
}

TYPED_TEST(EmulatedElementwise, ForSanitizersTheResidualGateHasTheCpusBits) {
  for (const Layout layout : {Layout::kStrided, Layout::kAligned}) {
    const std::vector<Shape> shapes = {{70, 24, layout, /*specials=*/true}};
    GateForward<TypeParam>(kGates[1], shapes, absl::MakeConstSpan(kThreadOrders).subspan(2));
    GateBackward<TypeParam>(kGates[1], shapes, absl::MakeConstSpan(kThreadOrders).subspan(2));
  }
}

TYPED_TEST(EmulatedElementwise, ForSanitizersAddHasTheCpusBits) {
  using T = TypeParam;
  ThreadPool pool(1);
  ExpectCpuBits<T>([&](Problem<T>& p) { Add<T>(p.a.view(), p.b.view(), p.out.span(), pool); },
                   [&](Problem<T>& p) {
                     return cuda_emulated::Add<T>(p.a.view(), p.b.view(), p.out.span(), nullptr);
                   },
                   {{5, 19, Layout::kStrided}, {5, 19, Layout::kAligned}, {5, 19}},
                   absl::MakeConstSpan(kThreadOrders).subspan(2));
}

TYPED_TEST(EmulatedElementwise, OutputsMayTakeTheirInputsPlace) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{70, 24}, Shape{70, 13, Layout::kStrided}}) {
    ThreadPool pool(1);
    Problem<T> expected(shape), p(shape);
    ResidualGateBackward<T>(kGates[1], p.a.view(), p.b.view(), Row(p.channels), p.d.view(),
                            expected.out.span(), expected.out2.span(), Row(expected.sums), pool);
    ASSERT_EQ(cuda_emulated::ResidualGateBackward<T>(
                  kGates[1], p.a.view(), p.b.view(), Row(p.channels), p.d.view(), p.d.span(),
                  p.a.span(), Row(p.sums), p.scratch.data(), nullptr),
              absl::OkStatus());
    ExpectSameBits<T>(p.d.view(), expected.out.view(), "dresidual in place of dout");
    ExpectSameBits<T>(p.a.view(), expected.out2.view(), "dbranch in place of residual");

    SigmoidGateBackward<T>(p.a.view(), p.b.view(), p.d.view(), expected.out.span(),
                           expected.out2.span(), pool);
    ASSERT_EQ(cuda_emulated::SigmoidGateBackward<T>(p.a.view(), p.b.view(), p.d.view(), p.b.span(),
                                                    p.a.span(), nullptr),
              absl::OkStatus());
    ExpectSameBits<T>(p.b.view(), expected.out.view(), "dx in place of the gate");
    ExpectSameBits<T>(p.a.view(), expected.out2.view(), "dgate in place of x");
  }
}

// Every element moves once, in 16-byte vectors and whole sectors.
TEST(EmulatedElementwiseTraffic, IsEveryElementOnce) {
  constexpr std::int64_t kRows = 128, kWidth = 512, kBytes = kRows * kWidth * 2;
  SectorRows<BFloat16> a(kRows, kWidth), b(kRows, kWidth), d(kRows, kWidth), out(kRows, kWidth),
      out2(kRows, kWidth);
  std::vector<float> gate(kWidth), dgate(kWidth);
  std::vector<float> scratch(ResidualGateBackwardScratch(kRows, kWidth));
  const auto expect = [&](int launches, const std::vector<std::string>& moved, const auto& run) {
    emulation::Session session({.count_traffic = true});
    AddMatrix(session, "a", a.span());
    AddMatrix(session, "b", b.span());
    AddMatrix(session, "d", d.span());
    AddMatrix(session, "out", out.span());
    AddMatrix(session, "out2", out2.span());
    AddArray(session, "gate", absl::MakeSpan(gate));
    AddArray(session, "dgate", absl::MakeSpan(dgate));
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    ASSERT_EQ(run(), absl::OkStatus());
    EXPECT_EQ(session.launches().size(), launches);
    for (const std::string& name : moved) {
      const emulation::Traffic& traffic = session.traffic(name);
      EXPECT_EQ(traffic.loads + traffic.stores, kBytes) << name;
      EXPECT_EQ(traffic.narrowest, 16) << name;
      EXPECT_EQ(traffic.partly_used_sectors, 0) << name;
    }
  };
  expect(1, {"a", "b", "out"},
         [&] { return cuda_emulated::Add<BFloat16>(a.span(), b.span(), out.span(), nullptr); });
  expect(1, {"a", "b", "d", "out", "out2"}, [&] {
    return cuda_emulated::SigmoidGateBackward<BFloat16>(a.span(), b.span(), d.span(), out.span(),
                                                        out2.span(), nullptr);
  });
  expect(1, {"a", "b", "out"}, [&] {
    return cuda_emulated::ResidualGateForward<BFloat16>({}, a.span(), b.span(), gate, out.span(),
                                                        nullptr);
  });
  expect(3, {"a", "b", "d", "out", "out2"}, [&] {
    return cuda_emulated::ResidualGateBackward<BFloat16>(
        {}, a.span(), b.span(), gate, d.span(), out.span(), out2.span(), absl::MakeSpan(dgate),
        scratch.data(), nullptr);
  });
}

// No memory is behind these rows; nothing looks.
TEST(EmulatedElementwiseErrors, AGridThatIsTooLargeIsRefused) {
  float nothing;
  const RowSpan<float> rows(&nothing, std::int64_t{1} << 40, 1);
  const absl::Status status = cuda_emulated::Add<float>(rows, rows, rows, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("split the call"), std::string::npos) << status;
}

TEST(EmulatedElementwiseDeathTest, ShapesMustAgree) {
  Problem<float> p({3, 8});
  TestMatrix<float> wide(3, 9);
  EXPECT_DEATH(
      static_cast<void>(cuda_emulated::Add<float>(p.a.view(), p.b.view(), wide.span(), nullptr)),
      "8 vs 9");
  EXPECT_DEATH(
      static_cast<void>(cuda_emulated::AddBias<float>(p.a.view(), {}, p.out.span(), nullptr)),
      "bias of rows");
  EXPECT_DEATH(
      static_cast<void>(cuda_emulated::ResidualGateForward<float>(
          {.temperature = 0}, p.a.view(), p.b.view(), Row(p.channels), p.out.span(), nullptr)),
      "temperature 0");
}

}  // namespace
}  // namespace headwise
