// What every Gpu does: copies, fills, products, launches, and graphs of them. On the host, and on
// this machine's GPU. Values are small integers, whose sums are exact in any order.
#include "core/cuda/gpu.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/launchers/test_gpu.h"

namespace headwise {
namespace {

constexpr absl::StatusCode kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

class GpuTest : public testing::Test {
 protected:
  // A copy of values in device memory.
  template <typename T>
  std::shared_ptr<T> Upload(const std::vector<T>& values) {
    const std::shared_ptr<T> copy = Empty<T>(values.size());
    EXPECT_TRUE(gpu_->Upload(copy.get(), values.data(), values.size() * sizeof(T)).ok());
    return copy;
  }
  template <typename T>
  std::shared_ptr<T> Empty(std::size_t size) {
    auto memory = gpu_->Allocate(static_cast<std::int64_t>(size * sizeof(T)));
    EXPECT_TRUE(memory.ok()) << memory.status();
    return std::static_pointer_cast<T>(*memory);
  }
  template <typename T>
  std::vector<T> Download(const std::shared_ptr<T>& memory, std::size_t size) {
    std::vector<T> values(size);
    EXPECT_TRUE(gpu_->Download(values.data(), memory.get(), size * sizeof(T)).ok());
    return values;
  }

  const std::unique_ptr<Gpu> gpu_ = CreateTestGpu();
};

template <typename T>
std::vector<T> Values(std::initializer_list<float> list) {
  std::vector<T> values;
  for (const float value : list) values.push_back(Narrow<T>(value));
  return values;
}

TEST_F(GpuTest, WhatIsUploadedCopiedAndFilledComesBack) {
  const std::shared_ptr<int> a = Upload<int>({1, 2, 3, 4}), b = Empty<int>(4);
  ASSERT_TRUE(gpu_->Fill(b.get(), 0, 16).ok());
  ASSERT_TRUE(gpu_->Copy(b.get() + 1, a.get(), 8).ok());
  EXPECT_EQ(Download(b, 4), (std::vector<int>{0, 1, 2, 0}));
  EXPECT_TRUE(gpu_->Copy(nullptr, nullptr, 0).ok());
  EXPECT_EQ(*gpu_->Allocate(0), nullptr);
  EXPECT_FALSE(gpu_->Describe().empty());
}

TEST_F(GpuTest, ProductsAreThoseOfALinearLayer) {
  const auto check = [&]<typename T, typename Out>(T, Out) {
    const std::shared_ptr<T> x = Upload(Values<T>({1, 2, 3, 4, 5, 6}));
    const std::shared_ptr<T> w = Upload(Values<T>({1, 0, -1, 0, 1, 1}));
    const std::shared_ptr<Out> out = Empty<Out>(6);
    const auto result = [&](std::size_t size) {
      std::vector<float> wide;
      for (const Out value : Download(out, size)) wide.push_back(Widen(value));
      return wide;
    };
    const RowSpan<const T> x_rows(x.get(), 2, 3), w_rows(w.get(), 2, 3), dy(x.get(), 2, 2, 3);
    ASSERT_TRUE((gpu_->LinearForward<T, Out>(x_rows, w_rows, {out.get(), 2, 2}).ok()));
    EXPECT_EQ(result(4), (std::vector<float>{-2, 5, -2, 11}));
    ASSERT_TRUE((gpu_->LinearBackwardInput<T, Out>(dy, w_rows, {out.get(), 2, 3}).ok()));
    EXPECT_EQ(result(6), (std::vector<float>{1, 2, 1, 4, 5, 1}));
    if constexpr (std::is_same_v<Out, float>) {
      ASSERT_TRUE(gpu_->LinearBackwardWeight<T>(dy, x_rows, {out.get(), 2, 3}).ok());
      EXPECT_EQ(result(6), (std::vector<float>{17, 22, 27, 22, 29, 36}));
    }
  };
  check(float(), float());
  check(BFloat16(), BFloat16());
  check(BFloat16(), float());
}

// A step as a model takes it: read from device memory, launch, multiply, copy.
TEST_F(GpuTest, AGraphReadsDeviceMemoryAtEachLaunch) {
  const std::shared_ptr<float> x = Upload<float>({1, 2}), w = Upload<float>({3, 1});
  const std::shared_ptr<float> sum = Empty<float>(2), y = Empty<float>(1), kept = Empty<float>(1);
  const auto graph = gpu_->Capture([&]() -> absl::Status {
    const RowSpan<const float> rows(x.get(), 1, 2);
    absl::Status status =
        TestLaunchers().f32.Add(rows, rows, RowSpan<float>(sum.get(), 1, 2), gpu_->stream());
    if (!status.ok()) return status;
    status = gpu_->LinearForward<float, float>(RowSpan<const float>(sum.get(), 1, 2),
                                               RowSpan<const float>(w.get(), 1, 2),
                                               RowSpan<float>(y.get(), 1, 1));
    if (!status.ok()) return status;
    return gpu_->Copy(kept.get(), y.get(), sizeof(float));
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_GE((*graph)->kernels(), 2);
  ASSERT_TRUE(gpu_->Fill(kept.get(), 0, sizeof(float)).ok());
  EXPECT_EQ(Download(kept, 1)[0], 0);  // nothing has run
  ASSERT_TRUE((*graph)->Launch().ok());
  EXPECT_EQ(Download(kept, 1)[0], 2 * (3 * 1 + 2));
  const std::vector<float> other = {5, -1};
  ASSERT_TRUE(gpu_->Upload(x.get(), other.data(), 8).ok());
  ASSERT_TRUE((*graph)->Launch().ok());
  EXPECT_EQ(Download(kept, 1)[0], 2 * (3 * 5 - 1));
  EXPECT_TRUE(gpu_->Synchronize().ok());
}

TEST_F(GpuTest, WhatAllocatesOrWaitsCannotBeCaptured) {
  const std::shared_ptr<float> x = Upload<float>({1});
  float host = 0;
  const std::vector<std::function<absl::Status()>> refused = {
      [&] { return gpu_->Allocate(64).status(); },
      [&] { return gpu_->Upload(x.get(), &host, 4); },
      [&] { return gpu_->Download(&host, x.get(), 4); },
      [&] { return gpu_->Synchronize(); },
      [&] { return gpu_->Capture([] { return absl::OkStatus(); }).status(); },
  };
  for (std::size_t i = 0; i < refused.size(); ++i) {
    EXPECT_EQ(gpu_->Capture(refused[i]).status().code(), kFailedPrecondition) << i;
  }
  // What failed left nothing behind.
  EXPECT_EQ(Download(x, 1)[0], 1);
  EXPECT_TRUE(gpu_->Capture([] { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace headwise
