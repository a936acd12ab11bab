// AtomicFile: a file that appears whole or not at all.
//
//   HW_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create("model.safetensors"));
//   HW_RETURN_IF_ERROR(file->Append(header.data(), header.size()));
//   HW_RETURN_IF_ERROR(file->Append(weights, bytes));
//   HW_RETURN_IF_ERROR(file->Commit());
//
// The bytes go to a hidden temporary file beside the destination; Commit() syncs it, renames it
// over the destination and syncs the directory. Whatever happens before the rename (an error, a
// full disk, SIGKILL, a power cut), the destination is what it was before; after it, it is the new
// file, whole. A failed or abandoned AtomicFile removes its temporary file; what SIGKILL leaves
// behind, RemoveTemporaries() removes. A destination that is a symbolic link is replaced, not
// followed.
//
// One thread at a time per object. Two objects, or two processes, may write the same destination:
// the last rename wins.
#ifndef HEADWISE_CORE_IO_ATOMIC_FILE_H_
#define HEADWISE_CORE_IO_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/io/file_system.h"

namespace headwise {

struct AtomicFileOptions {
  // Bytes that will be appended in all, if known: only for the error message of a full disk.
  std::int64_t expected_bytes = 0;
  // Small pieces are gathered into writes of this size; larger ones are split into writes of this
  // size. > 0.
  std::int64_t buffer_bytes = std::int64_t{1} << 20;
  // For tests: see file_system.h.
  FileHook hook;
};

class AtomicFile {
 public:
  // Creates the temporary file. The destination's directory must exist.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            AtomicFileOptions options = {});

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Removes the temporary file if Commit() has not succeeded.
  ~AtomicFile();

  // The first error is kept: later calls return it again and do nothing.
  absl::Status Append(const void* data, std::size_t bytes);
  // Once. If only the last step (syncing the directory) fails, the new file is already in place,
  // and the error says so.
  absl::Status Commit();

  std::int64_t bytes_appended() const { return appended_; }

 private:
  AtomicFile(std::string path, std::string temporary_path, int fd, AtomicFileOptions options);

  absl::Status WriteOut(const void* data, std::size_t bytes);
  // Remembers the error, closes and removes the temporary file.
  absl::Status Fail(absl::Status error);
  void CloseAndRemove();

  const std::string path_;
  const std::string temporary_path_;
  const FileSystem files_;
  const std::int64_t expected_bytes_;
  const std::size_t buffer_bytes_;
  int fd_;
  std::vector<char> buffer_;
  std::int64_t appended_ = 0;
  std::int64_t written_ = 0;
  bool committed_ = false;
  absl::Status error_;
};

// A whole file at once.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents,
                                 AtomicFileOptions options = {});

// A name beside `path` that no other writer of this machine uses:
// directory/.name.tmp-<pid>-<attempt>.
std::string TemporaryPathFor(const std::string& path, int attempt);

// Removes the temporary files and directories that interrupted writers left in `directory`, and
// returns how many. Only for a directory in which nobody else is writing.
absl::StatusOr<int> RemoveTemporaries(const std::string& directory, FileHook hook = nullptr);

// The directory that holds `path`; "." for a bare name.
std::string ParentDirectory(const std::string& path);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_ATOMIC_FILE_H_
