// The CPU path and the unfused kernels return the reference's bits, forward and backward, in fp32
// and in bf16 storage, for every shape and every kind of value.
//
// Break it to believe it: swap two additions of the tree in cpu_four_heads.h, cpu_any_head.h or
// unfused.cc, and SameBits fails in fp32.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/test_problem.h"
#include "kernels/prepare_qkv/test_shapes.h"

namespace headwise {
namespace {

template <typename T>
class SameBits : public testing::Test {
 protected:
  SameBits() : pools_{ThreadPool(1), ThreadPool(2), ThreadPool(3)} {}

  // Thread counts take turns; threads_test compares them.
  void Check(const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(testing::Message() << shape);
      ThreadPool& pool = pools_[checked_++ % 3];
      const Problem<T> problem(shape);
      const Results<T> expected = problem.RunReference();
      EXPECT_EQ(Difference(problem.RunCpu(pool), expected), "") << "cpu";
      EXPECT_EQ(Difference(problem.RunUnfused(pool), expected), "") << "unfused";
    }
  }

  ThreadPool pools_[3];
  int checked_ = 0;
};

using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(SameBits, StorageTypes);

TYPED_TEST(SameBits, EveryChoice) { this->Check(ShapesOfEveryChoice()); }
TYPED_TEST(SameBits, EveryKindOfValue) { this->Check(ShapesOfEveryKindOfValue()); }
TYPED_TEST(SameBits, EveryHeadDim) { this->Check(ShapesOfEveryHeadDim()); }
TYPED_TEST(SameBits, EveryTokenCountAndGroupSize) {
  this->Check(ShapesOfEveryTokenCountAndGroupSize());
}
TYPED_TEST(SameBits, PartialRotary) { this->Check(ShapesOfPartialRotary()); }
TYPED_TEST(SameBits, StridedRowsAnyAlignmentAndNoV) { this->Check(ShapesOfStridedRows()); }

// From 16 MB on the CPU path stores around the caches, if heads start on multiples of 64 bytes.
TYPED_TEST(SameBits, StreamedStores) {
  for (const std::int64_t head_dim : {64, 128}) {
    Shape shape{
        .tokens = 16 * 1024 * 1024 / (6 * head_dim * static_cast<int>(sizeof(TypeParam))) + 77,
        .kv_heads = 1,
        .group_size = 4,
        .head_dim = head_dim,
        .values = Values::kIntegers};
    const Results<TypeParam> streamed = Problem<TypeParam>(shape).RunCpu(this->pools_[1]);
    shape.misalign = 1;
    const Results<TypeParam> stored = Problem<TypeParam>(shape).RunCpu(this->pools_[1]);
    EXPECT_EQ(Difference(streamed, stored), "") << shape;
  }
}

}  // namespace
}  // namespace headwise
