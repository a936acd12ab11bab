// What the tests of kernel families on a GPU share: shapes, matrices of them, threads.
#ifndef HEADWISE_TESTS_GPU_FAMILY_TEST_H_
#define HEADWISE_TESTS_GPU_FAMILY_TEST_H_

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <thread>

#include "absl/types/span.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct TestShape {
  std::int64_t rows, width;
  Layout layout = Layout::kContiguous;
  bool specials = false;  // zeros of either sign, subnormals, infinities and NaN among the values
};

inline std::ostream& operator<<(std::ostream& out, const TestShape& s) {
  return out << s.rows << " x " << s.width << ", layout " << static_cast<int>(s.layout)
             << (s.specials ? ", special values" : "");
}

template <typename T>
TestMatrix<T> MatrixOf(const TestShape& s, std::uint64_t seed, double scale = 2.0) {
  TestMatrix<T> m(s.rows, s.width, s.layout);
  s.specials ? FillWithSpecials(m, seed, scale) : Fill(m, seed, scale);
  return m;
}

// The one row of a matrix.
template <typename T>
absl::Span<T> RowOf(RowSpan<T> m) {
  return {m.data, static_cast<std::size_t>(m.width)};
}

// Of the CPU path, whose bits do not depend on it.
inline ThreadPool& CpuThreads() {
  static auto* const pool =
      new ThreadPool(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16));
  return *pool;
}

}  // namespace headwise

#endif  // HEADWISE_TESTS_GPU_FAMILY_TEST_H_
