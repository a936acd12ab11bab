// What products pack with: exact transposes of every edge, and scratch that tasks can count on.
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/common/transpose.h"

namespace headwise {
namespace {

template <typename T>
class Packing : public testing::Test {};
using Storages = testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(Packing, Storages);

// Element (row, col) is row * 100 + col + 1, exact in all types when small.
template <typename T>
std::vector<T> Numbered(int rows, int stride) {
  std::vector<T> m(rows * stride);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < stride; ++j) m[i * stride + j] = Narrow<T>((i * 7 + j * 3) % 251 + 1);
  }
  return m;
}

constexpr int kCanary = -5;

TYPED_TEST(Packing, TransposedEqualsElementByElement) {
  using C = Compute<TypeParam>;
  for (const int width : {1, 2, 12, 15, 16, 17, 31, 32}) {
    for (const int depth : {1, 2, 15, 16, 17, 40}) {
      for (const int stored : {width <= 16 ? width : 32, 32, 48}) {
        // Exactly the matrix's elements: an overread is seen by AddressSanitizer.
        const std::vector<TypeParam> m = Numbered<TypeParam>(width, depth);
        std::vector<C> packed(depth * stored + kLanes, kCanary);
        PackTransposed(m.data(), depth, width, depth, stored, packed.data());
        for (int p = 0; p < depth; ++p) {
          for (int i = 0; i < stored; ++i) {
            const C expected = i < width ? Widen(m[i * depth + p]) : C{0};
            ASSERT_EQ(packed[p * stored + i], expected)
                << width << " x " << depth << " in " << stored << " at " << i << ", " << p;
          }
        }
        EXPECT_EQ(packed.back(), kCanary);
      }
    }
  }
}

TYPED_TEST(Packing, RowsEqualElementByElement) {
  using C = Compute<TypeParam>;
  for (const int width : {1, 2, 12, 15, 16, 17, 31, 32}) {
    for (const int depth : {1, 2, 17}) {
      for (const int stored : {width, 12, 32, 48}) {
        const std::vector<TypeParam> m = Numbered<TypeParam>(depth, width);
        std::vector<C> packed(depth * stored + kLanes, kCanary);
        PackRows(m.data(), width, width, depth, stored, packed.data());
        for (int p = 0; p < depth; ++p) {
          for (int i = 0; i < stored; ++i) {
            ASSERT_EQ(packed[p * stored + i], i < width ? Widen(m[p * width + i]) : C{0})
                << width << " x " << depth << " in " << stored << " at " << i << ", " << p;
          }
        }
        EXPECT_EQ(packed.back(), kCanary);
      }
    }
  }
}

TYPED_TEST(Packing, HorizontalTreesEqualTheTreeOfEachRow) {
  using C = Compute<TypeParam>;
  Vec16<C> rows[kLanes];
  C expected[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    C lane[kLanes];
    for (int i = 0; i < kLanes; ++i) lane[i] = C(1) / (r * 16 + i * i + 3);
    rows[r] = Load(lane);
    expected[r] = HorizontalSum(rows[r]);
  }
  const Vec16<C> sums = HorizontalTrees(rows, [](Vec16<C> a, Vec16<C> b) { return a + b; });
  for (int r = 0; r < kLanes; ++r) EXPECT_EQ(sums[r], expected[r]) << r;
}

TEST(ThreadScratch, NestedScratchesDoNotOverlapAndAreReused) {
  float* first = nullptr;
  {
    ThreadScratch outer;
    first = outer.Take<float>(100);
    std::fill(first, first + 100, 1.0f);
    {
      ThreadScratch inner;
      float* other = inner.Take<float>(1000);
      std::fill(other, other + 1000, 2.0f);
    }
    for (int i = 0; i < 100; ++i) ASSERT_EQ(first[i], 1.0f);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0);
  }
#if !defined(__SANITIZE_ADDRESS__)
  ThreadScratch again;
  EXPECT_EQ(again.Take<float>(50), first) << "a smaller need finds the same memory";
#endif
}

}  // namespace
}  // namespace headwise
