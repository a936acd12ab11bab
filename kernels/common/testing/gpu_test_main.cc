// main() of a test that needs a GPU. Without one it fails and says why: a skipped test would count
// as passed. Such tests are tagged requires-gpu, and run only when asked for.
#include <iostream>

#include "core/cuda/device.h"
#include "gtest/gtest.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const absl::StatusOr<headwise::CudaDevice> device = headwise::CurrentCudaDevice();
  if (!device.ok()) {
    std::cerr << "This test needs a GPU: " << device.status().message() << "\n";
    return 1;
  }
  std::cout << "On " << device->name << ", compute capability " << device->major << "."
            << device->minor << "\n";
  return RUN_ALL_TESTS();
}
