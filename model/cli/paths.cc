#include "model/cli/paths.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/io/file_system.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr char kRuns[] = "runs";

bool HoldsCheckpoint(const fs::path& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (absl::StartsWith(entry.path().filename().string(), "step-")) return true;
  }
  return false;
}

}  // namespace

absl::Status EnterUserDirectory() {
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  if (directory == nullptr) return absl::OkStatus();
  std::error_code error;
  fs::current_path(directory, error);
  return error ? FileError(error.value(), "enter", directory) : absl::OkStatus();
}

absl::StatusOr<std::string> DefaultTextPath() {
  std::vector<std::string> candidates;
  if (const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY")) {
    candidates.push_back(absl::StrCat(workspace, "/data/kjv.txt"));
  }
  candidates.push_back("data/kjv.txt");
  for (const std::string& path : candidates) {
    if (fs::exists(path)) return fs::absolute(path).string();
  }
  return absl::NotFoundError(absl::StrCat("data: no training text: looked for ",
                                          absl::StrJoin(candidates, " and "),
                                          "; try tools/setup.sh, or --set data.path=FILE"));
}

std::string NewRunDirectory(const std::string& name) {
  const std::string stem = absl::StrCat(kRuns, "/", name.empty() ? "run" : name);
  std::string path = stem;
  for (int i = 2; fs::exists(path); ++i) path = absl::StrCat(stem, "-", i);
  return path;
}

absl::StatusOr<std::string> NewestRunDirectory() {
  std::error_code error;
  fs::file_time_type newest_time{};
  std::string newest;
  for (const auto& entry : fs::directory_iterator(kRuns, error)) {
    if (!entry.is_directory() || !HoldsCheckpoint(entry.path())) continue;
    const fs::file_time_type time = fs::last_write_time(entry.path(), error);
    if (newest.empty() || time > newest_time) {
      newest = entry.path().string();
      newest_time = time;
    }
  }
  if (!newest.empty()) return newest;
  return absl::NotFoundError(
      absl::StrCat("runs: no trained model in ", fs::absolute(kRuns).string(),
                   "; expected a directory that holds step-N; try `train` first, or --run DIR"));
}

}  // namespace headwise
