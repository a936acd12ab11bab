// DeviceBlock: memory of the GPU for a StoragePool.
//
//   StoragePool pool(Device::kCuda, DeviceBlock);
//
// A program that uses it links //core/cuda, or for tests on the host
// //kernels/common/testing:cuda_on_host.
#ifndef HEADWISE_MODEL_DEVICE_BLOCKS_H_
#define HEADWISE_MODEL_DEVICE_BLOCKS_H_

#include <cstdint>
#include <memory>

namespace headwise {

// `bytes` bytes of device memory, not initialised, at a multiple of 256. Too little memory, or no
// GPU, fails an HW_CHECK: a program looks for its GPU (core/cuda/device.h) before it makes tensors.
std::shared_ptr<void> DeviceBlock(std::int64_t bytes);

}  // namespace headwise

#endif  // HEADWISE_MODEL_DEVICE_BLOCKS_H_
