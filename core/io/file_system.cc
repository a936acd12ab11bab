#include "core/io/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace headwise {
namespace {

template <typename Call>
auto RetryInterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int ErrnoIf(bool failed) { return failed ? errno : 0; }

// What a user can do about it; empty if the error says enough.
const char* Advice(int error) {
  switch (error) {
    case ENOSPC:
      return "; free space on that file system or choose another directory";
    case EDQUOT:
      return "; the disk quota is used up: remove files or choose another directory";
    case EFBIG:
      return "; the file system or a limit (ulimit -f) allows no larger file";
    case ENOENT:
      return "; check the name, and that its directory exists";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check the permissions or choose another directory";
    default:
      return "";
  }
}

}  // namespace

const char* Name(FileOperation operation) {
  switch (operation) {
    case FileOperation::kCreate:
      return "create";
    case FileOperation::kWrite:
      return "write";
    case FileOperation::kSync:
      return "sync";
    case FileOperation::kRename:
      return "rename";
    case FileOperation::kMakeDirectory:
      return "make_directory";
    case FileOperation::kRemove:
      return "remove";
  }
  return "?";
}

int FileSystem::Create(const std::string& path, int* fd) const {
  if (const int error = Announce(FileOperation::kCreate, path)) return error;
  *fd = RetryInterrupted(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  return ErrnoIf(*fd < 0);
}

int FileSystem::Write(int fd, const std::string& path, const void* data, std::size_t bytes) const {
  if (const int error = Announce(FileOperation::kWrite, path)) return error;
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = RetryInterrupted([&] { return ::write(fd, p, bytes); });
    if (n < 0) return errno;
    if (n == 0) return EIO;
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return 0;
}

int FileSystem::Sync(int fd, const std::string& path) const {
  if (const int error = Announce(FileOperation::kSync, path)) return error;
  return ErrnoIf(RetryInterrupted([&] { return ::fsync(fd); }) < 0);
}

int FileSystem::SyncPath(const std::string& path) const {
  const int fd = RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) return errno;
  int error = Sync(fd, path);
  // EINVAL: this kind of file system cannot sync a directory and keeps names safe in its own way.
  if (error == EINVAL) {
    struct stat info;
    if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) error = 0;
  }
  ::close(fd);
  return error;
}

int FileSystem::Rename(const std::string& from, const std::string& to) const {
  if (const int error = Announce(FileOperation::kRename, to)) return error;
  return ErrnoIf(::rename(from.c_str(), to.c_str()) < 0);
}

int FileSystem::Exchange(const std::string& a, const std::string& b) const {
  if (const int error = Announce(FileOperation::kRename, b)) return error;
  return ErrnoIf(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) < 0);
}

int FileSystem::MakeDirectory(const std::string& path) const {
  if (const int error = Announce(FileOperation::kMakeDirectory, path)) return error;
  return ErrnoIf(::mkdir(path.c_str(), 0777) < 0);
}

int FileSystem::RemoveTree(const std::string& path) const {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::symlink_status(path, code);
  if (status.type() == fs::file_type::not_found) return 0;
  if (code) return code.value();
  if (status.type() == fs::file_type::directory) {
    std::vector<std::string> entries;
    fs::directory_iterator it(path, code);
    for (; !code && it != fs::directory_iterator(); it.increment(code)) {
      entries.push_back(it->path().string());
    }
    if (code) return code.value();
    std::sort(entries.begin(), entries.end());
    for (const std::string& entry : entries) {
      if (const int error = RemoveTree(entry)) return error;
    }
  }
  if (const int error = Announce(FileOperation::kRemove, path)) return error;
  return ErrnoIf(std::remove(path.c_str()) < 0);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, "open", path);
  const absl::Cleanup close = [fd] { ::close(fd); };
  std::string bytes;
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    bytes.reserve(static_cast<std::size_t>(info.st_size));
  }
  // To the end, whatever the size was said to be: a pipe has none.
  std::string piece(std::size_t{1} << 20, '\0');
  while (true) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "read", path);
    if (n == 0) return bytes;
    bytes.append(piece.data(), static_cast<std::size_t>(n));
  }
}

absl::Status FileError(int error, const std::string& what, const std::string& path) {
  const absl::Status plain = absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
  const absl::StatusCode code =
      error == EDQUOT || error == EFBIG ? absl::StatusCode::kResourceExhausted : plain.code();
  return absl::Status(code, absl::StrCat(plain.message(), Advice(error)));
}

}  // namespace headwise
