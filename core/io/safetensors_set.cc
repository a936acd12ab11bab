#include "core/io/safetensors_set.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"
#include "core/io/safetensors_index.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> OpenFile(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return FileIsBad(path, file.status());
  return std::make_shared<const SafetensorsFile>(*std::move(file));
}

}  // namespace

absl::Status FileIsBad(const std::string& path, const absl::Status& status) {
  const bool names_path = absl::StartsWith(status.message(), path);
  return absl::Status(
      status.code() == absl::StatusCode::kInvalidArgument ? absl::StatusCode::kDataLoss
                                                          : status.code(),
      names_path ? std::string(status.message()) : absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<std::string> SafetensorsSet::FindIn(const std::string& directory) {
  const std::string index = absl::StrCat(directory, "/model.safetensors.index.json");
  const std::string file = absl::StrCat(directory, "/model.safetensors");
  std::error_code error;
  const bool has_index = fs::exists(index, error), has_file = fs::exists(file, error);
  if (has_index && has_file) {
    return absl::DataLossError(absl::StrCat(
        directory,
        ": expected model.safetensors or model.safetensors.index.json, found both; which "
        "one counts differs between programs; remove the other"));
  }
  if (has_index || has_file) return has_index ? index : file;
  return absl::NotFoundError(absl::StrCat(
      directory, ": expected model.safetensors or model.safetensors.index.json in it, found none"));
}

absl::StatusOr<SafetensorsSet> SafetensorsSet::Open(const std::string& path) {
  SafetensorsSet set(path);
  if (!absl::EndsWith(path, ".json")) {
    HW_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFile> file, OpenFile(path));
    set.files_.push_back(file);
    for (const SafetensorsTensor& tensor : file->tensors()) set.Add(*file, &tensor);
  } else {
    HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
    const absl::StatusOr<SafetensorsIndex> index = ParseSafetensorsIndex(text);
    if (!index.ok()) return FileIsBad(path, index.status());
    const std::string directory = fs::path(path).parent_path().string();
    std::map<std::string, std::string> holder_of;  // every tensor of every shard
    for (const std::string& shard : index->shards) {
      absl::StatusOr<std::shared_ptr<const SafetensorsFile>> file =
          OpenFile(directory.empty() ? shard : absl::StrCat(directory, "/", shard));
      if (!file.ok()) {
        return absl::Status(
            file.status().code(),
            absl::StrCat(path, ": a shard that it names: ", file.status().message()));
      }
      set.files_.push_back(*file);
      for (const SafetensorsTensor& tensor : (*file)->tensors()) {
        const auto [it, inserted] = holder_of.emplace(tensor.name, shard);
        if (!inserted) {
          return absl::DataLossError(
              absl::StrCat(path, ": expected tensor ", Printable(tensor.name),
                           " in one shard, found it in ", it->second, " and in ", shard));
        }
        set.Add(**file, &tensor);
      }
    }
    for (const auto& [tensor, shard] : index->shard_of) {
      const auto it = holder_of.find(tensor);
      if (it == holder_of.end() || it->second != shard) {
        return absl::DataLossError(absl::StrCat(path, ": expected tensor ", Printable(tensor),
                                                " in ", shard, ", found none of that name there"));
      }
    }
  }
  std::sort(
      set.tensors_.begin(), set.tensors_.end(),
      [](const SafetensorsTensor* a, const SafetensorsTensor* b) { return a->name < b->name; });
  return set;
}

void SafetensorsSet::Add(const SafetensorsFile& file, const SafetensorsTensor* tensor) {
  tensors_.push_back(tensor);
  file_of_[tensor->name] = &file;
}

std::vector<std::string> SafetensorsSet::Names() const {
  std::vector<std::string> names;
  for (const SafetensorsTensor* tensor : tensors_) names.push_back(tensor->name);
  return names;
}

const SafetensorsTensor* SafetensorsSet::Find(const std::string& name) const {
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? nullptr : it->second->Find(name);
}

const std::string& SafetensorsSet::FileOf(const std::string& name) const {
  const auto it = file_of_.find(name);
  HW_CHECK(it != file_of_.end()) << name;
  return it->second->path();
}

absl::StatusOr<Tensor> SafetensorsSet::Read(const std::string& name) const {
  const auto it = file_of_.find(name);
  HW_CHECK(it != file_of_.end()) << name;
  return it->second->Read(name);
}

}  // namespace headwise
