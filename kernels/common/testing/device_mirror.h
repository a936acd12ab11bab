// DeviceMirror: a copy of host memory in device memory, as far from a multiple of 256 bytes as the
// original, so that kernels find the same alignments. Spans of the original translate to the copy.
//
//   HW_ASSIGN_OR_RETURN(const DeviceMirror mirror, DeviceMirror::Of(x.storage()));
//   Launch(mirror.Translate(x.span()));
//   HW_RETURN_IF_ERROR(mirror.Download(x.storage().data()));
#ifndef HEADWISE_KERNELS_COMMON_TESTING_DEVICE_MIRROR_H_
#define HEADWISE_KERNELS_COMMON_TESTING_DEVICE_MIRROR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/device_memory.h"
#include "core/tensor/row_span.h"

namespace headwise {

// Movable, not copyable. The original may go away before it.
class DeviceMirror {
 public:
  DeviceMirror() = default;

  template <typename T>
  static absl::StatusOr<DeviceMirror> Of(absl::Span<T> host) {
    return OfBytes(host.data(), static_cast<std::int64_t>(host.size() * sizeof(T)));
  }
  // From the first row's first element to the last row's last, with the gaps between rows.
  template <typename T>
  static absl::StatusOr<DeviceMirror> Of(RowSpan<T> host) {
    const std::int64_t elements = host.rows > 0 ? (host.rows - 1) * host.stride + host.width : 0;
    return OfBytes(host.data, elements * static_cast<std::int64_t>(sizeof(T)));
  }

  // What lies within the original (checked), in the copy. Null, and nothing, are null there.
  template <typename T>
  T* Translate(T* host) const {
    return reinterpret_cast<T*>(TranslateAddress(reinterpret_cast<std::uintptr_t>(host)));
  }
  template <typename T>
  RowSpan<T> Translate(RowSpan<T> host) const {
    host.data = Translate(host.data);
    return host;
  }
  template <typename T>
  absl::Span<T> Translate(absl::Span<T> host) const {
    return {Translate(host.data()), host.size()};
  }

  // Overwrites the copy with, or writes it to, as many bytes of host memory.
  absl::Status Upload(const void* host) const;
  absl::Status Download(void* host) const;
  // kInternal if the copy is no longer what `host` holds.
  absl::Status CheckEqual(const void* host, const char* name) const;

 private:
  static absl::StatusOr<DeviceMirror> OfBytes(const void* host, std::int64_t bytes);
  std::uintptr_t TranslateAddress(std::uintptr_t host) const;
  std::byte* data() const { return memory_.data() + shift_; }

  DeviceMemory memory_;
  std::uintptr_t original_ = 0;  // the original's address
  std::int64_t shift_ = 0, bytes_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_DEVICE_MIRROR_H_
