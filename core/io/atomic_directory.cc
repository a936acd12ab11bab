#include "core/io/atomic_directory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"

namespace headwise {
namespace {

constexpr int kAttempts = 1000;

// Everything under `path`, leaves before the directories that hold them.
absl::Status SyncTree(const FileSystem& files, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  std::vector<std::string> entries;
  fs::directory_iterator it(path, code);
  for (; !code && it != fs::directory_iterator(); it.increment(code)) {
    entries.push_back(it->path().string());
  }
  if (code) return FileError(code.value(), "list", path);
  std::sort(entries.begin(), entries.end());
  for (const std::string& entry : entries) {
    const fs::file_type type = fs::symlink_status(entry, code).type();
    if (type == fs::file_type::directory) {
      HW_RETURN_IF_ERROR(SyncTree(files, entry));
    } else if (type == fs::file_type::regular) {
      if (const int error = files.SyncPath(entry)) {
        return FileError(error, "write to disk", entry);
      }
    }
  }
  if (const int error = files.SyncPath(path)) return FileError(error, "write to disk", path);
  return absl::OkStatus();
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicDirectory>> AtomicDirectory::Create(const std::string& path,
                                                                         FileHook hook) {
  const std::string destination = WithoutTrailingSlashes(path);
  if (std::filesystem::path(destination).filename().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not the name of a directory: '", path, "'"));
  }
  const FileSystem files(hook);
  int error = EEXIST;
  for (int attempt = 0; error == EEXIST && attempt < kAttempts; ++attempt) {
    const std::string temporary_path = TemporaryPathFor(destination, attempt);
    error = files.MakeDirectory(temporary_path);
    if (error == 0) {
      return std::unique_ptr<AtomicDirectory>(
          new AtomicDirectory(destination, temporary_path, std::move(hook)));
    }
  }
  return FileError(error, "create a temporary directory to write", destination);
}

AtomicDirectory::AtomicDirectory(std::string path, std::string temporary_path, FileHook hook)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), files_(std::move(hook)) {}

AtomicDirectory::~AtomicDirectory() {
  // Best effort: the name marks what is left as debris.
  if (!finished_) files_.RemoveTree(temporary_path_);
}

absl::Status AtomicDirectory::Commit(Existing existing) {
  HW_CHECK(!finished_) << "second Commit() of " << path_;
  const auto fail = [&](absl::Status status) {
    files_.RemoveTree(temporary_path_);
    finished_ = true;
    return status;
  };
  if (absl::Status synced = SyncTree(files_, temporary_path_); !synced.ok()) return fail(synced);

  int error = files_.Rename(temporary_path_, path_);
  bool replaced = false;
  // A directory that is not empty cannot be renamed over.
  if ((error == ENOTEMPTY || error == EEXIST) && existing == Existing::kRefuse) {
    return fail(absl::AlreadyExistsError(
        absl::StrCat(path_, ": has appeared meanwhile; nothing was written; try another name")));
  }
  if (error == ENOTEMPTY || error == EEXIST) {
    error = files_.Exchange(temporary_path_, path_);
    replaced = error == 0;
    if (error == EINVAL || error == ENOSYS) {
      return fail(absl::AlreadyExistsError(
          absl::StrCat("cannot replace ", path_,
                       ": this file system cannot exchange two directories; remove it first")));
    }
  }
  if (error != 0) {
    return fail(FileError(error, "rename the complete temporary directory to", path_));
  }
  finished_ = true;
  // Until this has happened a power cut may undo the exchange, so the old directory is not touched
  // before.
  if (const int sync_error = files_.SyncPath(ParentDirectory(path_))) {
    return FileError(sync_error, "sync the directory of (which itself is complete)", path_);
  }
  if (replaced) {
    // Under the temporary name lies the old directory now.
    if (const int remove_error = files_.RemoveTree(temporary_path_)) {
      return FileError(remove_error,
                       absl::StrCat("remove the previous version of ", path_,
                                    " (which itself is complete), now called"),
                       temporary_path_);
    }
  }
  return absl::OkStatus();
}

}  // namespace headwise
