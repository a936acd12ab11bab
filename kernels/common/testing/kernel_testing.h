// What the tests of kernel families share: strided, misaligned matrices whose gaps are watched,
// reproducible values with and without the awkward ones, equality of bits, and central differences.
//
//   TestMatrix<BFloat16> x(rows, width, Layout::kStrided);
//   FillWithSpecials(x, /*seed=*/1);
//   SwigluForward<BFloat16>(x.view(), ..., pool);
//   ExpectSameBits(y.view(), expected.view(), "17 columns");
//   y.ExpectGapsUntouched();
#ifndef HEADWISE_KERNELS_COMMON_TESTING_KERNEL_TESTING_H_
#define HEADWISE_KERNELS_COMMON_TESTING_KERNEL_TESTING_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"

namespace headwise {

// Widths and row counts around the vector, tile and block sizes that kernels use.
inline constexpr std::int64_t kOddSizes[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257};

enum class Layout {
  kContiguous,
  kStrided,  // rows start one element past any alignment, and have gaps between them
  kAligned,  // rows start on multiples of eight elements, and have gaps between them
};

// A matrix with elements before, between and behind its rows that nobody may write.
template <typename T>
class TestMatrix {
 public:
  TestMatrix(std::int64_t rows, std::int64_t width, Layout layout = Layout::kContiguous)
      : rows_(rows),
        width_(width),
        stride_(layout == Layout::kContiguous ? width
                : layout == Layout::kStrided  ? width + 5
                                              : (width + 15) / 8 * 8),
        offset_(layout == Layout::kStrided ? 17 : 16),
        storage_(offset_ + rows * stride_ + 16) {
    std::memset(storage_.data(), kCanary, storage_.size() * sizeof(T));
  }

  RowSpan<T> span() { return RowSpan<T>(storage_.data() + offset_, rows_, width_, stride_); }
  RowSpan<const T> view() const {
    return RowSpan<const T>(storage_.data() + offset_, rows_, width_, stride_);
  }
  // All of its elements, those that nobody may write included, as one row.
  RowSpan<T> storage() { return RowSpan<T>(storage_.data(), 1, Size()); }
  RowSpan<const T> storage() const { return RowSpan<const T>(storage_.data(), 1, Size()); }
  T& at(std::int64_t row, std::int64_t column) { return span().row(row)[column]; }
  const T& at(std::int64_t row, std::int64_t column) const { return view().row(row)[column]; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }

  void ExpectGapsUntouched() const {
    T canary;
    std::memset(&canary, kCanary, sizeof(T));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(storage_.size()); ++i) {
      const std::int64_t k = i - offset_;
      if (k >= 0 && k < rows_ * stride_ && k % stride_ < width_) continue;
      ASSERT_EQ(std::memcmp(&storage_[i], &canary, sizeof(T)), 0)
          << "element " << k << " of a matrix of " << rows_ << " rows, width " << width_
          << ", stride " << stride_ << " was written";
    }
  }

 private:
  static constexpr int kCanary = 0x5b;

  std::int64_t Size() const { return static_cast<std::int64_t>(storage_.size()); }

  std::int64_t rows_, width_, stride_, offset_;
  std::vector<T> storage_;
};

// Uniform in [-scale, scale), from an integer generator: the same values everywhere.
template <typename T>
void Fill(TestMatrix<T>& m, std::uint64_t seed, double scale = 1.0) {
  std::mt19937_64 random(seed);
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.width(); ++c) {
      const double u = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -63);
      m.at(r, c) = Narrow<T>(static_cast<Compute<T>>(u * scale));
    }
  }
}

// As Fill; then one element in 8 (16, 32, 64 in the rows that follow) becomes +-0, a subnormal,
// huge, infinite or NaN.
template <typename T>
void FillWithSpecials(TestMatrix<T>& m, std::uint64_t seed, double scale = 1.0) {
  using C = Compute<T>;
  using Limits = std::numeric_limits<C>;
  const C specials[] = {C(0),
                        -C(0),
                        Limits::denorm_min() * C(100000),
                        -Limits::min(),
                        Limits::max(),
                        -Limits::max() / C(3),
                        C(88.5),
                        C(-103.5),
                        Limits::infinity(),
                        C(1),
                        -Limits::infinity(),
                        Limits::quiet_NaN()};
  Fill(m, seed, scale);
  std::mt19937_64 random(seed + 1);
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.width(); ++c) {
      if (random() % (8 << r % 4) == 0)
        m.at(r, c) = Narrow<T>(specials[random() % std::size(specials)]);
    }
  }
}

// Equal bits, or both NaN.
template <typename T>
bool SameBits(T a, T b) {
  const Compute<T> x = Widen(a), y = Widen(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
void ExpectSameBits(RowSpan<const T> actual, RowSpan<const T> expected, const std::string& what) {
  ASSERT_EQ(actual.rows, expected.rows) << what;
  ASSERT_EQ(actual.width, expected.width) << what;
  for (std::int64_t r = 0; r < actual.rows; ++r) {
    for (std::int64_t c = 0; c < actual.width; ++c) {
      ASSERT_TRUE(SameBits(actual.row(r)[c], expected.row(r)[c]))
          << what << ": row " << r << " of " << actual.rows << ", column " << c << " of "
          << actual.width << ": " << Widen(actual.row(r)[c]) << ", expected "
          << Widen(expected.row(r)[c]);
    }
  }
}

// The bits of every element, any NaN counting as the same one, in row order.
template <typename T>
void AddToChecksum(Fnv1a64& sum, RowSpan<const T> m) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.width; ++c) {
      T x = m.row(r)[c];
      if (std::isnan(Widen(x))) x = Narrow<T>(std::numeric_limits<Compute<T>>::quiet_NaN());
      sum.Update(&x, sizeof(x));
    }
  }
}

// Checks d loss / d x against a five-point central difference, element by element of x, to 1e-7
// relative to the larger of the element's gradient and a hundredth of the largest. `loss` is
// evaluated with x changed in place.
inline void ExpectGradient(TestMatrix<double>& x, RowSpan<const double> gradient,
                           const std::function<double()>& loss, const std::string& what) {
  ASSERT_EQ(gradient.rows, x.rows()) << what;
  ASSERT_EQ(gradient.width, x.width()) << what;
  constexpr double kStep = 1e-3;
  double largest = 0;
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    for (std::int64_t c = 0; c < x.width(); ++c) {
      largest = std::max(largest, std::abs(gradient.row(r)[c]));
    }
  }
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    for (std::int64_t c = 0; c < x.width(); ++c) {
      const double centre = x.at(r, c);
      const auto at = [&](double offset) {
        x.at(r, c) = centre + offset * kStep;
        return loss();
      };
      const double difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
      x.at(r, c) = centre;
      ASSERT_NEAR(gradient.row(r)[c], difference,
                  1e-7 * std::max(std::abs(difference), 1e-2 * largest))
          << what << ": element " << r << ", " << c;
    }
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_KERNEL_TESTING_H_
