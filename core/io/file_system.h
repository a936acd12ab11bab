// FileSystem: the few system calls that durable writes are made of, each announced to a hook before
// it happens, so that a test can make the n-th one fail or kill the process there.
//
//   int calls = 0;
//   FileHook full_disk = [&](FileOperation operation, const std::string&) {
//     return operation == FileOperation::kWrite && ++calls == 3 ? ENOSPC : 0;
//   };
//
// Every function returns 0, or the errno value of the call that failed. Without a hook these are
// plain system calls. Interrupted calls are repeated. Thread-safe if the hook is.
#ifndef HEADWISE_CORE_IO_FILE_SYSTEM_H_
#define HEADWISE_CORE_IO_FILE_SYSTEM_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headwise {

enum class FileOperation { kCreate, kWrite, kSync, kRename, kMakeDirectory, kRemove };

// "create", "write", ...
const char* Name(FileOperation operation);

// Called before each operation with the path it is about to touch. Returns 0 to let it happen, or
// an errno value with which the operation then fails without happening.
using FileHook = std::function<int(FileOperation operation, const std::string& path)>;

class FileSystem {
 public:
  explicit FileSystem(FileHook hook = nullptr) : hook_(std::move(hook)) {}

  // Creates a file that does not exist yet and opens it for writing; *fd is then the caller's to
  // close.
  int Create(const std::string& path, int* fd) const;
  // All of `bytes`, in as many calls as the system needs. `path` is for the hook.
  int Write(int fd, const std::string& path, const void* data, std::size_t bytes) const;
  // fsync of an open file.
  int Sync(int fd, const std::string& path) const;
  // fsync of a file or directory by name.
  int SyncPath(const std::string& path) const;
  // Replaces an existing file `to`.
  int Rename(const std::string& from, const std::string& to) const;
  // Swaps two existing files or directories in one step.
  int Exchange(const std::string& a, const std::string& b) const;
  int MakeDirectory(const std::string& path) const;
  // A file, or a directory with everything in it; 0 if there is nothing of that name.
  int RemoveTree(const std::string& path) const;

 private:
  int Announce(FileOperation operation, const std::string& path) const {
    return hook_ ? hook_(operation, path) : 0;
  }

  FileHook hook_;
};

// A file's bytes, to its end. Errors are FileError()s.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// "cannot <what> <path>: No space left on device; <what to try>" as the status that fits the errno
// value: kNotFound, kPermissionDenied, kResourceExhausted (disk full or over quota), ...
absl::Status FileError(int error, const std::string& what, const std::string& path);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_FILE_SYSTEM_H_
