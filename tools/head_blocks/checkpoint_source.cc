#include "tools/head_blocks/checkpoint_source.h"

#include <algorithm>
#include <filesystem>
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
#include "core/io/safetensors_set.h"
#include "tools/head_blocks/headwise_checkpoint.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr char kState[] = "state.textproto";

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
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

}  // namespace

absl::StatusOr<CheckpointSource> FindCheckpointSource(const std::string& config,
                                                      const std::string& weights) {
  CheckpointSource source{.config_path = config, .weights_path = weights};
  std::error_code error;
  std::string directory = fs::path(weights).parent_path().string();
  if (fs::is_directory(weights, error)) {
    directory = weights;
    if (const std::string step = NewestStep(weights); !step.empty()) directory = step;
    absl::StatusOr<std::string> found = SafetensorsSet::FindIn(directory);
    if (absl::IsDataLoss(found.status())) return found.status();
    if (!found.ok()) {
      return absl::NotFoundError(
          absl::StrCat(weights, ": expected model.safetensors, model.safetensors.index.json or a ",
                       "Headwise run's step-N in it, found none"));
    }
    source.weights_path = *std::move(found);
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
  HW_ASSIGN_OR_RETURN(const SafetensorsSet set, SafetensorsSet::Open(weights_path));
  TensorHeaders headers{.files = set.num_files()};
  for (const SafetensorsTensor* tensor : set.tensors()) {
    headers.weights.push_back({tensor->name, tensor->shape});
  }
  std::sort(headers.weights.begin(), headers.weights.end(), NaturalLess);
  return headers;
}

absl::StatusOr<CheckpointLayout> ResolveCheckpoint(const CheckpointSource& source,
                                                   const TensorHeaders& headers,
                                                   const ResolveOptions& options) {
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(source.config_path));
  if (source.headwise) return HeadwiseLayout(source.config_path, text, headers.weights);
  absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(text, headers.weights, options);
  if (layout.ok()) return layout;
  // It calls the text config.json; here it has a path.
  absl::string_view message = layout.status().message();
  absl::ConsumePrefix(&message, "config.json: ");
  return FileIsBad(source.config_path, absl::Status(layout.status().code(), message));
}

}  // namespace headwise
