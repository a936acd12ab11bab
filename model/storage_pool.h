// StoragePool: makes tensors from memory that earlier tensors gave back.
//
// A training step needs the same few sizes over and over, hundreds of megabytes in all. Fresh pages
// from the system for each would be zeroed and mapped 4 KiB at a time (a tenth of a bf16 step);
// from the pool they come warm, and large ones lie on huge pages.
//
//   StoragePool pool;
//   Tensor x = pool.Empty({tokens, dim}, DType::kBF16);  // its memory returns with its last copy
//   pool.Trim();                                         // idle memory returns to the system
//
// A pool on a device takes its blocks from an allocator of the caller's, each once: allocations()
// stands still when every step asks for what the first did. The memory of a tensor that was dropped
// may go to the next one while kernels that use it are still enqueued, so all of them must run on
// one stream.
//
//   StoragePool on_gpu(Device::kCuda, BlocksOf(gpu));    // model/gpu/tensors.h
//   Tensor y = on_gpu.Empty({tokens, dim}, DType::kBF16, Device::kCuda);
//
// Tensors may outlive the pool. Not thread-safe: tensors are made and dropped by the thread that
// runs the model; the kernels' threads only touch their elements.
#ifndef HEADWISE_MODEL_STORAGE_POOL_H_
#define HEADWISE_MODEL_STORAGE_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "core/tensor/tensor.h"

namespace headwise {

// Makes a block of as many bytes, a multiple of 4096, 64-byte aligned, which its deleter frees.
using BlockAllocator = std::function<std::shared_ptr<void>(std::int64_t bytes)>;

class StoragePool {
 public:
  StoragePool();  // on Device::kCpu
  StoragePool(Device device, BlockAllocator allocate);
  ~StoragePool();
  StoragePool(const StoragePool&) = delete;
  StoragePool& operator=(const StoragePool&) = delete;

  // Uninitialised, on the pool's device (another fails an HW_CHECK); or on kMeta, where nothing is
  // allocated and the counts are what they would be.
  Tensor Empty(Shape shape, DType dtype, Device device = Device::kCpu);

  // Frees what no tensor uses.
  void Trim();

  // Memory in use and idle, now; and the most that in use has been.
  std::int64_t bytes_in_use() const;
  std::int64_t bytes_idle() const;
  std::int64_t peak_bytes_in_use() const;
  // How often a block was made, because no idle one fitted.
  std::int64_t allocations() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the tensors' deleters
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_STORAGE_POOL_H_
