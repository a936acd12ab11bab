#include "kernels/common/testing/device_mirror.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {

absl::StatusOr<DeviceMirror> DeviceMirror::OfBytes(const void* host, std::int64_t bytes) {
  DeviceMirror mirror;
  mirror.original_ = reinterpret_cast<std::uintptr_t>(host);
  mirror.shift_ = static_cast<std::int64_t>(mirror.original_ % 256);
  mirror.bytes_ = bytes;
  if (bytes == 0) return mirror;
  HW_ASSIGN_OR_RETURN(mirror.memory_, DeviceMemory::Allocate(bytes + mirror.shift_));
  HW_RETURN_IF_ERROR(mirror.Upload(host));
  return mirror;
}

std::uintptr_t DeviceMirror::TranslateAddress(std::uintptr_t host) const {
  if (host == 0 || bytes_ == 0) return 0;
  HW_CHECK(host >= original_ && host <= original_ + bytes_) << "not in the mirror";
  return reinterpret_cast<std::uintptr_t>(data()) + (host - original_);
}

absl::Status DeviceMirror::Upload(const void* host) const {
  return bytes_ == 0 ? absl::OkStatus() : CopyToDevice(data(), host, bytes_);
}

absl::Status DeviceMirror::Download(void* host) const {
  return bytes_ == 0 ? absl::OkStatus() : CopyToHost(host, data(), bytes_);
}

absl::Status DeviceMirror::CheckEqual(const void* host, const char* name) const {
  std::vector<unsigned char> now(bytes_);
  HW_RETURN_IF_ERROR(Download(now.data()));
  const auto* const then = static_cast<const unsigned char*>(host);
  const auto difference = std::mismatch(now.begin(), now.end(), then);  // NaN is no exception
  if (difference.first == now.end()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(name, ": written, first at byte ", difference.first - now.begin()));
}

}  // namespace headwise
