#include <cuda_runtime.h>

#include <vector>

#include "gtest/gtest.h"
#include "tests/third_party/triple.h"

#if !defined(HW_TRIPLE_LAUNCH) || !defined(HW_TRIPLE_WITH_CUDA)
#error "cuda_library must pass its own defines and those of its deps to what depends on it."
#endif
#ifdef HW_TRIPLE_FACTOR
#error "cuda_library must keep its local_defines to itself."
#endif

namespace headwise::testing {
namespace {

TEST(CudaLibraryTest, ComputesOnAGpuOrSaysThatThereIsNone) {
  // 3 * x + y rounds to 0 in two steps and to 2^-25 in one: the kernel must not be contracted to
  // an fma.
  const std::vector<float> x = {1, 2, 0x1.555556p-2f};
  std::vector<float> y = {1, -1, -1};
  const std::vector<float> before = y;
  int count = 0;
  const bool gpu = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  const int error = TripleAndAdd(x.data(), y.data(), 3);
  if (gpu) {
    ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(static_cast<cudaError_t>(error));
    EXPECT_EQ(y, (std::vector<float>{4, 5, 0}));
  } else {
    EXPECT_NE(error, cudaSuccess);
    EXPECT_EQ(y, before);
  }
}

}  // namespace
}  // namespace headwise::testing
