// AtomicDirectory: a directory of files that appears whole or not at all: a checkpoint.
//
//   HW_ASSIGN_OR_RETURN(const auto step, AtomicDirectory::Create("run/step-400"));
//   HW_RETURN_IF_ERROR(WriteSafetensors(step->PathOf("model.safetensors"), tensors));
//   HW_RETURN_IF_ERROR(WriteFileAtomically(step->PathOf("state.textproto"), state));
//   HW_RETURN_IF_ERROR(step->Commit());
//
// Files are written, by any means, into a hidden temporary directory beside the destination.
// Commit() syncs every file and directory in it, puts it in the destination's place in one step,
// and syncs the parent. An existing destination is exchanged with the new directory and then
// removed; the file system must support that (ext4, xfs, btrfs and tmpfs do). At every moment the
// destination is the old directory or the new one, whole.
//
// A failed or abandoned AtomicDirectory removes what it wrote; what SIGKILL leaves behind,
// RemoveTemporaries() of atomic_file.h removes. One thread at a time per object.
#ifndef HEADWISE_CORE_IO_ATOMIC_DIRECTORY_H_
#define HEADWISE_CORE_IO_ATOMIC_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/file_system.h"

namespace headwise {

class AtomicDirectory {
 public:
  // What Commit() does with a destination that exists and is not empty.
  enum class Existing { kReplace, kRefuse };

  // Creates the temporary directory. The destination's parent must exist. `hook` is for tests: see
  // file_system.h.
  static absl::StatusOr<std::unique_ptr<AtomicDirectory>> Create(const std::string& path,
                                                                 FileHook hook = nullptr);

  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  // Removes the temporary directory if Commit() has not succeeded.
  ~AtomicDirectory();

  // Where to write a file that will be called path/name.
  std::string PathOf(const std::string& name) const { return temporary_path_ + "/" + name; }

  // Once. On an error before the last two steps (syncing the parent, removing the old directory)
  // the destination is as it was; after that it is the new one, the error says so, and the old one
  // may stay behind as a temporary. kAlreadyExists if the destination is to be refused.
  absl::Status Commit(Existing existing = Existing::kReplace);

 private:
  AtomicDirectory(std::string path, std::string temporary_path, FileHook hook);

  const std::string path_;
  const std::string temporary_path_;
  const FileSystem files_;
  bool finished_ = false;  // committed or failed: no temporary directory is left
};

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_ATOMIC_DIRECTORY_H_
