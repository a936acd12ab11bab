#include "tools/head_blocks/checkpoint_source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_index.h"
#include "tools/head_blocks/headwise_checkpoint.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr char kState[] = "state.textproto";

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return absl::DataLossError(absl::StrCat(path, ": a directory, expected a file"));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return FileError(errno, "open", path);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

// What is wrong with a file is not what is wrong with a flag.
absl::Status FileIsBad(const std::string& path, const absl::Status& status) {
  const bool names_path = absl::StrContains(status.message(), path);
  return absl::Status(
      status.code() == absl::StatusCode::kInvalidArgument ? absl::StatusCode::kDataLoss
                                                          : status.code(),
      names_path ? std::string(status.message()) : absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<SafetensorsFile> OpenSafetensors(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return FileIsBad(path, file.status());
  return file;
}

// The step-N of the largest N in a run directory; empty if there is none.
std::string NewestStep(const std::string& run) {
  std::int64_t newest = -1;
  std::string found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step;
    if (absl::StartsWith(name, "step-") && absl::SimpleAtoi(name.substr(5), &step) &&
        step > newest && Exists(absl::StrCat(entry.path().string(), "/", kState))) {
      newest = step;
      found = entry.path().string();
    }
  }
  return found;
}

// Digits compare as numbers: "layers.2" comes before "layers.10".
bool NaturalLess(const WeightShape& left, const WeightShape& right) {
  const std::string &a = left.name, &b = right.name;
  std::size_t i = 0, j = 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      std::size_t i_end = i, j_end = j;
      while (i_end < a.size() && is_digit(a[i_end])) ++i_end;
      while (j_end < b.size() && is_digit(b[j_end])) ++j_end;
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      const int order = a.compare(i, i_end - i, b, j, j_end - j);
      if (order != 0) return order < 0;
      i = i_end;
      j = j_end;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

absl::StatusOr<TensorHeaders> ReadShards(const std::string& index_path) {
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWhole(index_path));
  const absl::StatusOr<SafetensorsIndex> index = ParseSafetensorsIndex(text);
  if (!index.ok()) return FileIsBad(index_path, index.status());
  const std::string directory = fs::path(index_path).parent_path().string();
  TensorHeaders headers;
  std::map<std::string, std::string> holder_of;  // every tensor of every shard
  for (const std::string& shard : index->shards) {
    absl::StatusOr<SafetensorsFile> file =
        OpenSafetensors(directory.empty() ? shard : absl::StrCat(directory, "/", shard));
    if (!file.ok()) {
      return absl::Status(
          file.status().code(),
          absl::StrCat(index_path, ": a shard that it names: ", file.status().message()));
    }
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto [it, inserted] = holder_of.emplace(tensor.name, shard);
      if (!inserted) {
        return absl::DataLossError(absl::StrCat(index_path, ": expected tensor ",
                                                Printable(tensor.name), " in one shard, found it ",
                                                "in ", it->second, " and in ", shard));
      }
      headers.weights.push_back({tensor.name, tensor.shape});
    }
    ++headers.files;
  }
  for (const auto& [tensor, shard] : index->shard_of) {
    const auto it = holder_of.find(tensor);
    if (it == holder_of.end() || it->second != shard) {
      return absl::DataLossError(absl::StrCat(index_path, ": expected tensor ", Printable(tensor),
                                              " in ", shard, ", found none of that name there"));
    }
  }
  return headers;
}

}  // namespace

absl::StatusOr<CheckpointSource> FindCheckpointSource(const std::string& config,
                                                      const std::string& weights) {
  CheckpointSource source{.config_path = config, .weights_path = weights};
  std::error_code error;
  std::string directory = fs::path(weights).parent_path().string();
  if (fs::is_directory(weights, error)) {
    directory = weights;
    if (const std::string step = NewestStep(weights); !step.empty()) directory = step;
    const std::string index = absl::StrCat(directory, "/model.safetensors.index.json");
    source.weights_path = Exists(index) ? index : absl::StrCat(directory, "/model.safetensors");
    if (!Exists(source.weights_path)) {
      return absl::NotFoundError(
          absl::StrCat(weights, ": expected model.safetensors, model.safetensors.index.json or a ",
                       "Headwise run's step-N in it, found none"));
    }
  } else if (!Exists(weights)) {
    return absl::NotFoundError(absl::StrCat(weights, ": no such file or directory"));
  }
  if (!config.empty()) return source;
  const std::string prefix = directory.empty() ? "" : absl::StrCat(directory, "/");
  if (Exists(prefix + kState)) {
    source.config_path = prefix + kState;
    source.headwise = true;
    return source;
  }
  source.config_path = prefix + "config.json";
  if (!Exists(source.config_path)) {
    return absl::NotFoundError(absl::StrCat("no config.json beside ", source.weights_path,
                                            "; name it with --config FILE"));
  }
  return source;
}

absl::StatusOr<TensorHeaders> ReadTensorHeaders(const std::string& weights_path) {
  TensorHeaders headers;
  if (absl::EndsWith(weights_path, ".json")) {
    HW_ASSIGN_OR_RETURN(headers, ReadShards(weights_path));
  } else {
    HW_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenSafetensors(weights_path));
    for (const SafetensorsTensor& tensor : file.tensors()) {
      headers.weights.push_back({tensor.name, tensor.shape});
    }
    headers.files = 1;
  }
  std::sort(headers.weights.begin(), headers.weights.end(), NaturalLess);
  return headers;
}

absl::StatusOr<CheckpointLayout> ResolveCheckpoint(const CheckpointSource& source,
                                                   const TensorHeaders& headers,
                                                   const ResolveOptions& options) {
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWhole(source.config_path));
  if (source.headwise) return HeadwiseLayout(source.config_path, text, headers.weights);
  absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(text, headers.weights, options);
  if (layout.ok()) return layout;
  // It calls the text config.json; here it has a path.
  absl::string_view message = layout.status().message();
  absl::ConsumePrefix(&message, "config.json: ");
  return FileIsBad(source.config_path, absl::Status(layout.status().code(), message));
}

}  // namespace headwise
