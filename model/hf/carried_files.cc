#include "model/hf/carried_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "core/io/file_system.h"
#include "core/io/json_text.h"
#include "core/io/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kConfig[] = "config.json";
constexpr char kDtypes[] = "dtypes.json";

// Tokenizers, chat templates, licences: small files that are read with the weights. Other weights
// (pytorch_model.bin, consolidated.00.pth) are not of this kind.
bool IsCarried(const std::string& name) {
  if (name == kConfig || name == kDtypes || absl::EndsWith(name, ".safetensors.index.json")) {
    return false;
  }
  for (const char* ending : {".json", ".txt", ".model", ".jinja", ".md"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return name == "LICENSE" || name == "NOTICE";
}

// Names of the carried files in a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListOthers(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (IsCarried(name) && fs::is_regular_file(it->path(), ignored)) names.push_back(name);
  }
  if (error) return FileError(error.value(), "list", directory);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  HW_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(from));
  return WriteFileAtomically(to, bytes);
}

absl::Status WriteUnused(const HfFolder& folder, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : folder.not_run()) {
    const SafetensorsTensor& tensor = *folder.tensors().Find(name);
    entries.push_back({name, *tensor.dtype, tensor.shape});
  }
  HW_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(path, std::move(entries), {.metadata = {{"format", "pt"}}}));
  for (const SafetensorsEntry& entry : writer->entries()) {
    HW_ASSIGN_OR_RETURN(const Tensor tensor, folder.tensors().Read(entry.name));
    HW_RETURN_IF_ERROR(writer->Append(tensor));
  }
  return writer->Commit();
}

// {"model.norm.weight": "BF16", ...}
absl::StatusOr<std::map<std::string, DType>> ReadDtypes(const std::string& path) {
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const absl::StatusOr<json> document = ParseJsonObject(text);
  if (!document.ok()) return FileIsBad(path, document.status());
  std::map<std::string, DType> dtypes;
  for (const auto& [name, value] : document->items()) {
    bool known = false;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (value != Name(dtype)) continue;
      dtypes[name] = dtype;
      known = true;
    }
    if (!known) {
      return absl::DataLossError(
          absl::StrCat(path, ": ", name, ": expected F32, BF16 or F16, found something else"));
    }
  }
  return dtypes;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WriteCarried(const HfFolder& folder,
                                                      const AtomicDirectory& directory) {
  const std::string inside = directory.PathOf(kCarriedDirectory);
  if (const int error = FileSystem().MakeDirectory(inside)) {
    return FileError(error, "create", inside);
  }
  HW_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(inside, "/", kConfig), folder.config_text()));
  json dtypes = json::object();
  for (const auto& [name, shape] : folder.map().tensors()) {
    dtypes[name] = folder.tensors().Find(name)->dtype_name;
  }
  HW_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(inside, "/", kDtypes), dtypes.dump(1) + "\n"));
  HW_ASSIGN_OR_RETURN(std::vector<std::string> names, ListOthers(folder.directory()));
  for (const std::string& name : names) {
    HW_RETURN_IF_ERROR(
        CopyFile(absl::StrCat(folder.directory(), "/", name), absl::StrCat(inside, "/", name)));
  }
  names.insert(names.begin(), {kConfig, kDtypes});
  for (std::string& name : names) name = absl::StrCat(kCarriedDirectory, "/", name);
  if (!folder.not_run().empty()) {
    HW_RETURN_IF_ERROR(WriteUnused(folder, directory.PathOf(kUnusedTensors)));
    names.push_back(kUnusedTensors);
  }
  return names;
}

absl::StatusOr<std::optional<CarriedFiles>> ReadCarried(const std::string& checkpoint) {
  CarriedFiles carried;
  carried.directory = absl::StrCat(checkpoint, "/", kCarriedDirectory);
  std::error_code error;
  if (!fs::is_directory(carried.directory, error)) return std::optional<CarriedFiles>();
  HW_ASSIGN_OR_RETURN(carried.config_text,
                      ReadWholeFile(absl::StrCat(carried.directory, "/", kConfig)));
  HW_ASSIGN_OR_RETURN(carried.dtypes, ReadDtypes(absl::StrCat(carried.directory, "/", kDtypes)));
  HW_ASSIGN_OR_RETURN(carried.others, ListOthers(carried.directory));
  const std::string unused = absl::StrCat(checkpoint, "/", kUnusedTensors);
  if (fs::exists(unused, error)) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(unused);
    if (!file.ok()) return FileIsBad(unused, file.status());
    carried.unused.emplace(*std::move(file));
  }
  return std::optional<CarriedFiles>(std::move(carried));
}

absl::Status CopyOthers(const CarriedFiles& carried, const AtomicDirectory& directory) {
  for (const std::string& name : carried.others) {
    HW_RETURN_IF_ERROR(
        CopyFile(absl::StrCat(carried.directory, "/", name), directory.PathOf(name)));
  }
  return absl::OkStatus();
}

}  // namespace headwise
