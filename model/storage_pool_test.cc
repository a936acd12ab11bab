#include "model/storage_pool.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(StoragePoolTest, ATensorTakesTheMemoryThatAnEarlierOneGaveBack) {
  StoragePool pool;
  const void* first = nullptr;
  {
    const Tensor a = pool.Empty({100, 64}, DType::kF32);
    first = a.raw_data();
    const Tensor copy = a;  // the memory goes back with the last copy only
  }
  EXPECT_EQ(pool.bytes_in_use(), 0);
  const Tensor b = pool.Empty({64, 100}, DType::kF32);
  EXPECT_EQ(b.raw_data(), first);
  EXPECT_EQ(b.shape(), (Shape{64, 100}));
}

TEST(StoragePoolTest, LiveTensorsNeverShareMemory) {
  StoragePool pool;
  const Tensor a = pool.Empty({5000}, DType::kF32);
  const Tensor b = pool.Empty({5000}, DType::kF32);
  std::memset(a.raw_data(), 1, static_cast<std::size_t>(a.bytes()));
  std::memset(b.raw_data(), 2, static_cast<std::size_t>(b.bytes()));
  EXPECT_EQ(*static_cast<const char*>(a.raw_data()), 1);
  EXPECT_EQ(static_cast<const char*>(a.raw_data())[a.bytes() - 1], 1);
}

TEST(StoragePoolTest, ABlockMoreThanTwiceTooLargeIsNotUsed) {
  StoragePool pool;
  { const Tensor large = pool.Empty({1 << 20}, DType::kF32); }
  const std::int64_t idle = pool.bytes_idle();
  const Tensor small = pool.Empty({1 << 12}, DType::kF32);
  EXPECT_EQ(pool.bytes_idle(), idle);
}

TEST(StoragePoolTest, CountsBytesAndTrims) {
  StoragePool pool;
  {
    const Tensor a = pool.Empty({3 << 20}, DType::kBF16);
    EXPECT_GE(pool.bytes_in_use(), a.bytes());
    EXPECT_LE(pool.bytes_in_use(), a.bytes() + a.bytes() / 8);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw_data()) % 64, 0u);
  }
  EXPECT_GT(pool.bytes_idle(), 0);
  EXPECT_GE(pool.peak_bytes_in_use(), 6 << 20);
  pool.Trim();
  EXPECT_EQ(pool.bytes_idle(), 0);
}

TEST(StoragePoolTest, TensorsMayOutliveThePool) {
  std::optional<StoragePool> pool(std::in_place);
  const Tensor a = pool->Empty({64}, DType::kF32);
  pool.reset();
  a.data<float>()[63] = 1.0f;  // under the address sanitizer this is the check
  EXPECT_EQ(a.data<float>()[63], 1.0f);
}

// Two steps of a model's kind: the second asks for what the first gave back.
TEST(StoragePoolTest, AStepThatRepeatsAllocatesNothing) {
  StoragePool pool;
  const auto step = [&] {
    const Tensor x = pool.Empty({300, 64}, DType::kF32), y = pool.Empty({300, 64}, DType::kF32);
    { const Tensor scratch = pool.Empty({1 << 16}, DType::kF32); }
    const Tensor z = pool.Empty({1 << 16}, DType::kF32);
  };
  step();
  EXPECT_EQ(pool.allocations(), 3);
  step();
  EXPECT_EQ(pool.allocations(), 3);
}

TEST(StoragePoolTest, BlocksComeFromTheAllocatorAndGoBackToIt) {
  int made = 0, freed = 0;
  std::vector<std::int64_t> sizes;
  std::optional<StoragePool> pool(
      std::in_place, Device::kCuda, [&](std::int64_t bytes) -> std::shared_ptr<void> {
        ++made;
        sizes.push_back(bytes);
        return std::shared_ptr<void>(std::aligned_alloc(4096, static_cast<std::size_t>(bytes)),
                                     [&freed](void* block) {
                                       std::free(block);
                                       ++freed;
                                     });
      });
  Tensor a = pool->Empty({1000}, DType::kF32, Device::kCuda);
  EXPECT_EQ(a.device(), Device::kCuda);
  a = Tensor();
  EXPECT_EQ(freed, 0);
  a = pool->Empty({1000}, DType::kF32, Device::kCuda);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(sizes, std::vector<std::int64_t>{4096});
  pool.reset();
  EXPECT_EQ(freed, 0);  // the tensor still has it
  a = Tensor();
  EXPECT_EQ(freed, 1);
}

TEST(StoragePoolDeathTest, APoolHasNothingOnAnotherDevice) {
  StoragePool pool;
  EXPECT_DEATH(pool.Empty({1}, DType::kF32, Device::kCuda), "has nothing on");
}

TEST(StoragePoolTest, EmptyTensorsAreDefined) {
  StoragePool pool;
  EXPECT_TRUE(pool.Empty({0, 8}, DType::kF32).defined());
}

}  // namespace
}  // namespace headwise
