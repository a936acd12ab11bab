#include "core/io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"

namespace headwise {

// Elements are stored little-endian and handed out as they are.
static_assert(std::endian::native == std::endian::little);

class SafetensorsFile::Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }

  int fd() const { return fd_; }

 private:
  const int fd_;
};

namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status ReadAt(int fd, const std::string& path, std::int64_t offset, std::int64_t bytes,
                    void* destination) {
  char* p = static_cast<char*>(destination);
  while (bytes > 0) {
    // Linux reads at most 2 GiB - 4 KiB per call.
    const ssize_t n =
        ::pread(fd, p, static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 30)),
                static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "read", path);
    if (n == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": ends at byte ", offset, "; it became shorter while it was read"));
    }
    p += n;
    offset += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path, std::shared_ptr<const Descriptor> file,
                                 SafetensorsHeader header)
    : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, "open", path);
  const auto file = std::make_shared<const Descriptor>(fd);
  struct stat info;
  if (::fstat(fd, &info) != 0) return FileError(errno, "open", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const std::int64_t file_bytes = info.st_size;
  std::string prefix(static_cast<std::size_t>(std::min<std::int64_t>(file_bytes, 8)), '\0');
  HW_RETURN_IF_ERROR(ReadAt(fd, path, 0, static_cast<std::int64_t>(prefix.size()), prefix.data()));
  const absl::StatusOr<std::int64_t> header_end = SafetensorsHeaderEnd(prefix, file_bytes);
  if (!header_end.ok()) return WithPath(path, header_end.status());
  prefix.resize(static_cast<std::size_t>(*header_end));
  HW_RETURN_IF_ERROR(ReadAt(fd, path, 8, *header_end - 8, prefix.data() + 8));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(prefix, file_bytes);
  if (!header.ok()) return WithPath(path, header.status());
  return SafetensorsFile(path, file, *std::move(header));
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  names.reserve(header_.tensors.size());
  for (const SafetensorsTensor& tensor : header_.tensors) names.push_back(tensor.name);
  return names;
}

const SafetensorsTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.tensors[it->second];
}

absl::StatusOr<const SafetensorsTensor*> SafetensorsFile::FindReadable(
    const std::string& name) const {
  const SafetensorsTensor* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(path_, ": no tensor '", name, "' among its ",
                                            header_.tensors.size(), DidYouMean(name, Names())));
  }
  if (!tensor->dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(path_, ": tensor '", name, "' has dtype ",
                                                 tensor->dtype_name,
                                                 ", which can be listed but not read"));
  }
  return tensor;
}

absl::Status SafetensorsFile::ReadBytes(const SafetensorsTensor& tensor, void* destination) const {
  return ReadAt(file_->fd(), path_, tensor.file_offset, tensor.bytes, destination);
}

absl::StatusOr<Tensor> SafetensorsFile::Read(const std::string& name) const {
  HW_ASSIGN_OR_RETURN(const SafetensorsTensor* info, FindReadable(name));
  Tensor tensor = Tensor::Empty(info->shape, *info->dtype, Device::kCpu);
  HW_RETURN_IF_ERROR(ReadBytes(*info, tensor.raw_data()));
  return tensor;
}

absl::Status SafetensorsFile::ReadInto(const std::string& name, const Tensor& destination) const {
  HW_CHECK(destination.defined() && destination.device() == Device::kCpu) << "reading " << name;
  HW_ASSIGN_OR_RETURN(const SafetensorsTensor* info, FindReadable(name));
  if (*info->dtype != destination.dtype() || info->shape != destination.shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": tensor '", name, "' is ", info->dtype_name, " ", ToString(info->shape),
        ", expected ", Name(destination.dtype()), " ", ToString(destination.shape())));
  }
  return ReadBytes(*info, destination.raw_data());
}

}  // namespace headwise
