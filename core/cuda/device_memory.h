// DeviceMemory: bytes on the GPU, owned; and copies between them and the host.
//
//   HW_ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(bytes));
//   HW_RETURN_IF_ERROR(CopyToDevice(memory.data(), host.data(), bytes));
//   ... kernels ...
//   HW_RETURN_IF_ERROR(CopyToHost(host.data(), memory.data(), bytes));
//
// The copies with the host and the fill are for setting up and looking at results, not for a hot
// path: each first waits for everything on the device and returns when it is done.
#ifndef HEADWISE_CORE_CUDA_DEVICE_MEMORY_H_
#define HEADWISE_CORE_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

struct CUstream_st;

namespace headwise {

// Movable, not copyable. Not initialised. data() is a multiple of 256; null only if size() is 0.
class DeviceMemory {
 public:
  // kResourceExhausted if there is too little memory, kFailedPrecondition if there is no device.
  static absl::StatusOr<DeviceMemory> Allocate(std::int64_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

absl::Status CopyToDevice(void* device, const void* host, std::int64_t bytes);
absl::Status CopyToHost(void* host, const void* device, std::int64_t bytes);
absl::Status FillDevice(void* device, unsigned char byte, std::int64_t bytes);
// Within the device, by CUDA's own copy and fill. Enqueued: do not wait, and can be captured.
absl::Status CopyOnDevice(void* to, const void* from, std::int64_t bytes, CUstream_st* stream);
absl::Status FillOnDevice(void* to, unsigned char byte, std::int64_t bytes, CUstream_st* stream);

// DeviceArray<T>: DeviceMemory as elements.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  static absl::StatusOr<DeviceArray> Allocate(std::int64_t size) {
    absl::StatusOr<DeviceMemory> memory =
        DeviceMemory::Allocate(size * static_cast<std::int64_t>(sizeof(T)));
    if (!memory.ok()) return memory.status();
    return DeviceArray(*std::move(memory), size);
  }
  // A copy of host values.
  static absl::StatusOr<DeviceArray> Of(absl::Span<const T> values) {
    absl::StatusOr<DeviceArray> array = Allocate(static_cast<std::int64_t>(values.size()));
    if (!array.ok()) return array;
    const absl::Status status =
        CopyToDevice(array->data(), values.data(), values.size() * sizeof(T));
    if (!status.ok()) return status;
    return array;
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::int64_t size() const { return size_; }
  // As an argument that takes host spans of addresses which are not read.
  absl::Span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }

 private:
  DeviceArray(DeviceMemory memory, std::int64_t size) : memory_(std::move(memory)), size_(size) {}

  DeviceMemory memory_;
  std::int64_t size_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_DEVICE_MEMORY_H_
