#include <cuda_runtime.h>
#include <nccl.h>

#include <string>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(NcclTest, AnswersWithItsOwnVersion) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST(NcclTest, AGroupOfOneNeedsAGpu) {
  int count = 0;
  const bool gpu = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  ncclComm_t comm = nullptr;
  const int device = 0;
  const ncclResult_t result = ncclCommInitAll(&comm, 1, &device);
  if (!gpu) {
    EXPECT_NE(result, ncclSuccess);
    EXPECT_NE(std::string(ncclGetErrorString(result)), "");
    return;
  }
  ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result);
  int ranks = 0;
  EXPECT_EQ(ncclCommCount(comm, &ranks), ncclSuccess);
  EXPECT_EQ(ranks, 1);
  ncclCommDestroy(comm);
}

}  // namespace
}  // namespace headwise
