#include "model/storage_pool.h"

#include <cstdint>
#include <cstring>
#include <optional>

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

TEST(StoragePoolTest, EmptyTensorsAreDefined) {
  StoragePool pool;
  EXPECT_TRUE(pool.Empty({0, 8}, DType::kF32).defined());
}

}  // namespace
}  // namespace headwise
