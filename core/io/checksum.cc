#include "core/io/checksum.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace headwise {

std::uint64_t Checksum(const void* data, std::size_t bytes) {
  Fnv1a64 sum;
  sum.Update(data, bytes);
  return sum.value();
}

absl::StatusOr<std::uint64_t> ChecksumFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  auto buffer = std::make_unique<std::array<char, 1 << 16>>();
  Fnv1a64 sum;
  while (true) {
    const std::size_t n = std::fread(buffer->data(), 1, buffer->size(), file.get());
    sum.Update(buffer->data(), n);
    if (n < buffer->size()) break;
  }
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  return sum.value();
}

std::string ChecksumToHex(std::uint64_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16));
}

}  // namespace headwise
