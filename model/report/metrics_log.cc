#include "model/report/metrics_log.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: a loss that is not a number is null.
std::string ToLine(const StepMetrics& m) {
  Json json;
  json["step"] = m.step;
  json["loss"] = m.loss;
  json["gradient_norm"] = m.gradient_norm;
  json["clip_factor"] = m.clip_factor;
  json["muon_learning_rate"] = m.muon_learning_rate;
  json["adamw_learning_rate"] = m.adamw_learning_rate;
  json["skipped"] = m.skipped;
  json["tokens"] = m.tokens;
  json["seconds"] = m.seconds;
  json["tokens_per_second"] = m.seconds > 0 ? static_cast<double>(m.tokens) / m.seconds : 0;
  if (m.validation_loss.has_value()) json["validation_loss"] = *m.validation_loss;
  return json.dump() + "\n";
}

double NumberOrNan(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || !it->is_number() ? std::nan("") : it->get<double>();
}

// Every line that ends in a newline, and is JSON with a step.
absl::StatusOr<std::vector<std::pair<StepMetrics, std::string>>> ReadLines(
    const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::vector<std::pair<StepMetrics, std::string>> lines;
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // torn: no newline was written
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
      return absl::DataLossError(absl::StrCat(path, ": line ", lines.size() + 1,
                                              ": expected a JSON object with a step, found '",
                                              line.substr(0, 80), "'"));
    }
    StepMetrics m;
    m.step = json["step"].get<std::int64_t>();
    m.loss = NumberOrNan(json, "loss");
    m.gradient_norm = NumberOrNan(json, "gradient_norm");
    m.clip_factor = NumberOrNan(json, "clip_factor");
    m.muon_learning_rate = NumberOrNan(json, "muon_learning_rate");
    m.adamw_learning_rate = NumberOrNan(json, "adamw_learning_rate");
    const auto skipped = json.find("skipped");
    m.skipped = skipped != json.end() && skipped->is_boolean() && skipped->get<bool>();
    const auto tokens = json.find("tokens");
    m.tokens =
        tokens != json.end() && tokens->is_number_integer() ? tokens->get<std::int64_t>() : 0;
    m.seconds = NumberOrNan(json, "seconds");
    if (json.contains("validation_loss")) m.validation_loss = NumberOrNan(json, "validation_loss");
    lines.emplace_back(m, line);
  }
  return lines;
}

}  // namespace

absl::StatusOr<MetricsLog> MetricsLog::Open(const std::string& path, std::int64_t last_step) {
  std::string kept;
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    HW_ASSIGN_OR_RETURN(const auto lines, ReadLines(path));
    for (const auto& [metrics, line] : lines) {
      if (metrics.step <= last_step) absl::StrAppend(&kept, line, "\n");
    }
  }
  HW_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  std::ofstream file(path, std::ios::binary | std::ios::app);
  if (!file)
    return absl::DataLossError(absl::StrCat(path, ": cannot append: ", std::strerror(errno)));
  return MetricsLog(path, std::move(file));
}

absl::Status MetricsLog::Append(const StepMetrics& metrics) {
  file_ << ToLine(metrics) << std::flush;
  if (file_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, ": cannot write step ", metrics.step,
                   "; expected room on the disk; free some and run again to resume"));
}

absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  HW_ASSIGN_OR_RETURN(const auto lines, ReadLines(path));
  std::vector<StepMetrics> metrics;
  for (const auto& entry : lines) metrics.push_back(entry.first);
  return metrics;
}

}  // namespace headwise
