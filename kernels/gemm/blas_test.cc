// DeviceBlas against sums in double: on the host's implementation, and on a GPU's.
#include "core/cuda/blas.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/split_mix.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

constexpr std::int64_t kGap = 3;  // between rows, of every matrix

// A matrix on the host and in device memory, with gaps between its rows.
template <typename T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t width, std::uint64_t seed)
      : rows_(rows), width_(width), values_(static_cast<std::size_t>(rows * (width + kGap))) {
    for (T& value : values_) {
      value = Narrow<T>(static_cast<float>(NextSplitMix(seed) >> 40) * 0x1p-23f - 1.0f);
    }
    device_ = *DeviceArray<T>::Of(values_);
  }
  RowSpan<T> device() const { return {device_.data(), rows_, width_, width_ + kGap}; }
  double at(std::int64_t row, std::int64_t column) const {
    return Widen(values_[static_cast<std::size_t>(row * (width_ + kGap) + column)]);
  }
  // The elements in device memory, gaps included.
  std::vector<T> Download() const {
    std::vector<T> values(values_.size());
    EXPECT_EQ(CopyToHost(values.data(), device_.data(),
                         static_cast<std::int64_t>(values.size() * sizeof(T))),
              absl::OkStatus());
    return values;
  }
  const std::vector<T>& before() const { return values_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }

 private:
  std::int64_t rows_, width_;
  std::vector<T> values_;
  DeviceArray<T> device_;
};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct Shape {
  std::int64_t t, n, k;
};
constexpr Shape kShapes[] = {{1, 1, 1}, {5, 7, 3}, {64, 48, 96}, {3, 130, 257},
                             {4, 6, 0}, {0, 6, 4}, {4, 0, 6},    {1, 256, 64}};

// Every element of `out` is sum(row, column, i) over i < depth, to within the rounding of its sum
// and its type; the gaps are as they were.
template <typename T, typename F>
void ExpectProduct(const Matrix<T>& out, std::int64_t depth, F term, const std::string& what) {
  const std::vector<T> actual = out.Download();
  const double unit = sizeof(T) == 2 ? 0x1p-8 : 0x1p-23;
  for (std::int64_t r = 0; r < out.rows(); ++r) {
    for (std::int64_t c = 0; c < out.width() + kGap; ++c) {
      const auto at = static_cast<std::size_t>(r * (out.width() + kGap) + c);
      if (c >= out.width()) {
        ASSERT_EQ(Widen(actual[at]), Widen(out.before()[at]))
            << what << ": the gap after row " << r;
        continue;
      }
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < depth; ++i) {
        sum += term(r, c, i);
        magnitude += std::fabs(term(r, c, i));
      }
      const double tolerance =
          std::fabs(sum) * unit + magnitude * static_cast<double>(depth) * 0x1p-24;
      ASSERT_LE(std::fabs(Widen(actual[at]) - sum), tolerance)
          << what << ": row " << r << ", column " << c;
    }
  }
}

template <typename In, typename Out>
void ExpectLayers(const DeviceBlas& blas) {
  for (const Shape& s : kShapes) {
    const std::string what = absl::StrCat(s.t, " x ", s.n, " x ", s.k);
    const Matrix<In> x(s.t, s.k, 1), w(s.n, s.k, 2), dy(s.t, s.n, 3);
    const Matrix<Out> y(s.t, s.n, 4), dx(s.t, s.k, 5);
    const Matrix<float> dw(s.n, s.k, 6);
    ASSERT_EQ((blas.LinearForward<In, Out>(x.device(), w.device(), y.device())), absl::OkStatus());
    ASSERT_EQ((blas.LinearBackwardInput<In, Out>(dy.device(), w.device(), dx.device())),
              absl::OkStatus());
    ASSERT_EQ(blas.LinearBackwardWeight<In>(dy.device(), x.device(), dw.device()),
              absl::OkStatus());
    ExpectProduct(
        y, s.k, [&](auto t, auto n, auto k) { return x.at(t, k) * w.at(n, k); }, "y, " + what);
    ExpectProduct(
        dx, s.n, [&](auto t, auto k, auto n) { return dy.at(t, n) * w.at(n, k); }, "dx, " + what);
    ExpectProduct(
        dw, s.t, [&](auto n, auto k, auto t) { return dy.at(t, n) * x.at(t, k); }, "dw, " + what);
  }
}

TEST(DeviceBlas, ProductsAreThoseOfALinearLayer) {
  const CudaStream stream = *CudaStream::Create();
  const absl::StatusOr<DeviceBlas> blas = DeviceBlas::Create(stream);
  ASSERT_TRUE(blas.ok()) << blas.status();
  ExpectLayers<float, float>(*blas);
  ExpectLayers<BFloat16, BFloat16>(*blas);
  ExpectLayers<BFloat16, float>(*blas);
}

TEST(DeviceBlas, AgainAndInAGraphTheBitsAreTheSame) {
  const CudaStream stream = *CudaStream::Create();
  const DeviceBlas blas = *DeviceBlas::Create(stream);
  const Matrix<BFloat16> x(64, 512, 1), w(384, 512, 2), dy(64, 384, 3);
  const Matrix<BFloat16> y(64, 384, 4);
  const Matrix<float> dw(384, 512, 5);
  const auto enqueue = [&](CUstream_st*) {
    const absl::Status status =
        blas.LinearForward<BFloat16, BFloat16>(x.device(), w.device(), y.device());
    return status.ok() ? blas.LinearBackwardWeight<BFloat16>(dy.device(), x.device(), dw.device())
                       : status;
  };
  ASSERT_EQ(enqueue(nullptr), absl::OkStatus());
  const std::string first = Bytes(y.Download()), first_dw = Bytes(dw.Download());
  const auto clear = [&] {
    const absl::Status status =
        FillDevice(y.device().data, 0xff, static_cast<std::int64_t>(first.size()));
    ASSERT_EQ(status, absl::OkStatus());
    ASSERT_EQ(FillDevice(dw.device().data, 0xff, static_cast<std::int64_t>(first_dw.size())),
              absl::OkStatus());
  };
  const absl::StatusOr<CudaGraph> graph = CudaGraph::Capture(stream, enqueue);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int repetition = 0; repetition < 2; ++repetition) {
    clear();
    ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
    ASSERT_EQ(stream.Synchronize(), absl::OkStatus());
    for (std::int64_t r = 0; r < 64; ++r) {
      const std::size_t row = static_cast<std::size_t>(r) * (384 + kGap) * 2;
      EXPECT_TRUE(Bytes(y.Download()).substr(row, 384 * 2) == first.substr(row, 384 * 2)) << r;
    }
    for (std::int64_t r = 0; r < 384; ++r) {
      const std::size_t row = static_cast<std::size_t>(r) * (512 + kGap) * 4;
      EXPECT_TRUE(Bytes(dw.Download()).substr(row, 512 * 4) == first_dw.substr(row, 512 * 4)) << r;
    }
  }
}

}  // namespace
}  // namespace headwise
