// What the Gpu on the host shows that a GPU would hide.
#include "kernels/launchers/gpu_on_host.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/base/split_mix.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/launchers/emulated.h"

namespace headwise {
namespace {

constexpr absl::StatusCode kInvalidArgument = absl::StatusCode::kInvalidArgument;

class GpuOnHostTest : public testing::Test {
 protected:
  std::shared_ptr<float> Upload(const std::vector<float>& values) {
    const std::shared_ptr<float> copy = Empty(values.size());
    EXPECT_TRUE(gpu_->Upload(copy.get(), values.data(), values.size() * sizeof(float)).ok());
    return copy;
  }
  std::shared_ptr<float> Empty(std::size_t size) {
    return std::static_pointer_cast<float>(*gpu_->Allocate(size * sizeof(float)));
  }
  std::vector<float> Download(const std::shared_ptr<float>& memory, std::size_t size) {
    std::vector<float> values(size);
    EXPECT_TRUE(gpu_->Download(values.data(), memory.get(), size * sizeof(float)).ok());
    return values;
  }
  absl::Status Add(const float* a, const float* b, float* out, CUstream_st* stream) {
    return OnHostLaunchers().f32.Add({a, 1, 2}, {b, 1, 2}, {out, 1, 2}, stream);
  }

  const std::unique_ptr<Gpu> gpu_ = CreateGpuOnHost(2);
};
using GpuOnHostDeathTest = GpuOnHostTest;

TEST_F(GpuOnHostDeathTest, TheHostDiesOfTouchingDeviceMemory) {
  const std::shared_ptr<float> x = Upload({1, 2});
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x.get())), "");
  EXPECT_DEATH(*static_cast<volatile float*>(x.get()) = 1, "");
  // After work too.
  ASSERT_TRUE(Add(x.get(), x.get(), x.get(), gpu_->stream()).ok());
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x.get())), "");
  EXPECT_EQ(Download(x, 2), (std::vector<float>{2, 4}));
}

TEST_F(GpuOnHostTest, MemoryThatNobodyWroteOrThatWasFreedIsNotANumber) {
  std::shared_ptr<float> x = Empty(2);
  EXPECT_TRUE(std::isnan(Download(x, 2)[1]));
  x = Upload({1, 2});
  x = nullptr;
  EXPECT_TRUE(std::isnan(Download(Empty(2), 2)[0]));
}

TEST_F(GpuOnHostTest, AKernelThatTouchesHostMemoryIsFound) {
  const std::shared_ptr<float> x = Upload({1, 2});
  float host[2] = {1, 2};
  const absl::Status status = Add(x.get(), host, x.get(), gpu_->stream());
  EXPECT_TRUE(absl::StrContains(status.message(), "out of bounds")) << status;
  const absl::Status product =
      gpu_->LinearForward<float, float>({x.get(), 1, 2}, {host, 1, 2}, {x.get(), 1, 1});
  EXPECT_EQ(product.code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Copy(x.get(), host, 8).code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Copy(x.get() + 1, x.get(), 8).code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Upload(host, host, 8).code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Download(x.get(), x.get(), 8).code(), kInvalidArgument);
}

// The next allocation may lie behind it.
TEST_F(GpuOnHostTest, CopiesAndProductsKeepToOneAllocation) {
  const std::shared_ptr<float> x = Upload({1, 2}), behind = Upload({3, 4});
  std::vector<float> host(200);
  const std::int64_t beyond = 3 * sizeof(float);
  EXPECT_EQ(gpu_->Download(host.data(), x.get(), beyond).message(),
            "Download: device: 12 bytes go beyond an allocation");
  EXPECT_EQ(gpu_->Upload(x.get() + 1, host.data(), 8).code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Fill(x.get(), 0, beyond).code(), kInvalidArgument);
  EXPECT_EQ(gpu_->Copy(behind.get(), x.get(), beyond).code(), kInvalidArgument);
  const absl::Status product =
      gpu_->LinearForward<float, float>({x.get(), 1, 3}, {x.get(), 1, 3}, {behind.get(), 1, 1});
  EXPECT_EQ(product.code(), kInvalidArgument);
  EXPECT_EQ(Download(behind, 2), (std::vector<float>{3, 4}));
  EXPECT_TRUE(gpu_->Download(host.data(), x.get() + 1, 4).ok());
  // What was freed is no allocation.
  float* const freed = Upload({5}).get();
  EXPECT_EQ(gpu_->Download(host.data(), freed, 4).code(), kInvalidArgument);
}

TEST_F(GpuOnHostTest, ALaunchElsewhereThanOnTheStreamIsRefused) {
  const std::shared_ptr<float> x = Upload({1, 2});
  EXPECT_EQ(Add(x.get(), x.get(), x.get(), nullptr).code(), kInvalidArgument);
}

// As a kernel's parameters are.
TEST_F(GpuOnHostTest, AGraphKeepsHostArgumentsAsTheyWere) {
  const std::shared_ptr<float> x = Upload({2, 2}), y = Empty(2);
  Swiglu op;
  const auto graph = gpu_->Capture([&] {
    return OnHostLaunchers().f32.SwigluForward(op, {x.get(), 1, 2}, {x.get(), 1, 2},
                                               {y.get(), 1, 2}, gpu_->stream());
  });
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->kernels(), 1);
  ASSERT_TRUE((*graph)->Launch().ok());
  const std::vector<float> before = Download(y, 2);
  op = {.clamped = true, .limit = 0.5};
  ASSERT_TRUE((*graph)->Launch().ok());
  EXPECT_EQ(Download(y, 2), before);
}

TEST_F(GpuOnHostTest, ProductsAndKernelsHaveTheBitsOfTheCpu) {
  constexpr std::int64_t kTokens = 7, kIn = 37, kOut = 5;
  std::uint64_t state = 1;
  const auto draw = [&](std::int64_t size) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < size; ++i) {
      values.push_back(static_cast<float>(NextSplitMix(state) >> 40) * 1e-7f - 0.5f);
    }
    return values;
  };
  const std::vector<float> x = draw(kTokens * kIn), w = draw(kOut * kIn);
  std::vector<float> expected(kTokens * kOut), sums(kTokens * kOut);
  ThreadPool pool(1);
  LinearForward<float, float>(GemmBackend::kContract, {x.data(), kTokens, kIn},
                              {w.data(), kOut, kIn}, {}, {expected.data(), kTokens, kOut}, pool);
  const RowSpan<const float> expected_rows(expected.data(), kTokens, kOut);
  ASSERT_TRUE(EmulatedLaunchers()
                  .f32.Add(expected_rows, expected_rows, {sums.data(), kTokens, kOut}, nullptr)
                  .ok());
  const std::shared_ptr<float> y = Empty(expected.size());
  const RowSpan<float> rows(y.get(), kTokens, kOut);
  ASSERT_TRUE((gpu_->LinearForward<float, float>({Upload(x).get(), kTokens, kIn},
                                                 {Upload(w).get(), kOut, kIn}, rows)
                   .ok()));
  EXPECT_EQ(Download(y, expected.size()), expected);
  ASSERT_TRUE(OnHostLaunchers().f32.Add(rows, rows, rows, gpu_->stream()).ok());
  EXPECT_EQ(Download(y, sums.size()), sums);
}

}  // namespace
}  // namespace headwise
