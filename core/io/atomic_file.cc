#include "core/io/atomic_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

constexpr char kMark[] = ".tmp-";
// Leftovers of a process with the same id that was killed: try the next number.
constexpr int kAttempts = 1000;

// ".name.tmp-<digits>-<digits>"
bool IsTemporaryName(const std::string& name) {
  const std::size_t mark = name.rfind(kMark);
  if (name.empty() || name[0] != '.' || mark == std::string::npos) return false;
  const std::string numbers = name.substr(mark + sizeof(kMark) - 1);
  const std::size_t dash = numbers.find('-');
  return dash != std::string::npos && dash > 0 && dash + 1 < numbers.size() &&
         numbers.find_first_not_of("0123456789-") == std::string::npos &&
         numbers.find('-', dash + 1) == std::string::npos;
}

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

std::string ParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string TemporaryPathFor(const std::string& path, int attempt) {
  // Names are limited to 255 bytes; a long one is cut, which costs nothing but recognisability.
  const std::string name = std::filesystem::path(path).filename().string().substr(0, 200);
  return absl::StrCat(ParentDirectory(path), "/.", name, kMark, ::getpid(), "-", attempt);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                               AtomicFileOptions options) {
  HW_CHECK_GT(options.buffer_bytes, 0);
  if (std::filesystem::path(path).filename().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not the name of a file: '", path, "'"));
  }
  const FileSystem files(options.hook);
  int error = EEXIST;
  for (int attempt = 0; error == EEXIST && attempt < kAttempts; ++attempt) {
    const std::string temporary_path = TemporaryPathFor(path, attempt);
    int fd = -1;
    error = files.Create(temporary_path, &fd);
    if (error == 0) {
      return std::unique_ptr<AtomicFile>(
          new AtomicFile(path, temporary_path, fd, std::move(options)));
    }
  }
  return FileError(error, "create a temporary file to write", path);
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, int fd,
                       AtomicFileOptions options)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      files_(std::move(options.hook)),
      expected_bytes_(options.expected_bytes),
      buffer_bytes_(static_cast<std::size_t>(options.buffer_bytes)),
      fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (!committed_) CloseAndRemove();
}

void AtomicFile::CloseAndRemove() {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  // Best effort: the caller learns of the error that led here, and the name marks the file as
  // debris.
  files_.RemoveTree(temporary_path_);
}

absl::Status AtomicFile::Fail(absl::Status error) {
  error_ = std::move(error);
  CloseAndRemove();
  return error_;
}

absl::Status AtomicFile::WriteOut(const void* data, std::size_t bytes) {
  const int error = files_.Write(fd_, temporary_path_, data, bytes);
  if (error != 0) {
    std::string what = "write";
    if (IsFull(error)) {
      what = absl::StrCat(
          "write ", bytes, " bytes after the first ", written_,
          expected_bytes_ > 0 ? absl::StrCat(" (of ", expected_bytes_, " in all)") : std::string(),
          " of");
    }
    return Fail(FileError(error, what, path_));
  }
  written_ += static_cast<std::int64_t>(bytes);
  return absl::OkStatus();
}

absl::Status AtomicFile::Append(const void* data, std::size_t bytes) {
  HW_RETURN_IF_ERROR(error_);
  HW_CHECK(fd_ >= 0 && !committed_) << "Append() after Commit() of " << path_;
  appended_ += static_cast<std::int64_t>(bytes);
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    if (buffer_.empty() && bytes >= buffer_bytes_) {  // no copy
      HW_RETURN_IF_ERROR(WriteOut(p, buffer_bytes_));
      p += buffer_bytes_;
      bytes -= buffer_bytes_;
      continue;
    }
    const std::size_t n = std::min(bytes, buffer_bytes_ - buffer_.size());
    buffer_.insert(buffer_.end(), p, p + n);
    p += n;
    bytes -= n;
    if (buffer_.size() == buffer_bytes_) {
      HW_RETURN_IF_ERROR(WriteOut(buffer_.data(), buffer_.size()));
      buffer_.clear();
    }
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  HW_RETURN_IF_ERROR(error_);
  HW_CHECK(fd_ >= 0 && !committed_) << "second Commit() of " << path_;
  if (!buffer_.empty()) HW_RETURN_IF_ERROR(WriteOut(buffer_.data(), buffer_.size()));
  if (const int error = files_.Sync(fd_, temporary_path_)) {
    return Fail(FileError(error, "write to disk", path_));
  }
  if (const int error = files_.Rename(temporary_path_, path_)) {
    return Fail(FileError(error, "rename the complete temporary file to", path_));
  }
  committed_ = true;
  ::close(fd_);  // all data are on disk already, so nothing is left that could fail
  fd_ = -1;
  if (const int error = files_.SyncPath(ParentDirectory(path_))) {
    error_ = FileError(error, "sync the directory of (the file itself is complete)", path_);
  }
  return error_;
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents,
                                 AtomicFileOptions options) {
  options.expected_bytes = static_cast<std::int64_t>(contents.size());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                      AtomicFile::Create(path, std::move(options)));
  HW_RETURN_IF_ERROR(file->Append(contents.data(), contents.size()));
  return file->Commit();
}

absl::StatusOr<int> RemoveTemporaries(const std::string& directory, FileHook hook) {
  const FileSystem files(std::move(hook));
  std::vector<std::string> found;
  std::error_code code;
  std::filesystem::directory_iterator it(directory, code);
  for (; !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    if (IsTemporaryName(it->path().filename().string())) found.push_back(it->path().string());
  }
  if (code) return FileError(code.value(), "list", directory);
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) {
    if (const int error = files.RemoveTree(path)) return FileError(error, "remove", path);
  }
  return static_cast<int>(found.size());
}

}  // namespace headwise
