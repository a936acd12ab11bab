// MetricsLog: metrics.jsonl, one JSON object a step, flushed at once. What plots and scripts read.
//
//   {"step":1,"loss":5.54,"gradient_norm":1.2,...}          loss in nats per token
//   {"step":50,"loss":2.9,...,"validation_loss":2.8,...}    steps with a validation
#ifndef HEADWISE_MODEL_REPORT_METRICS_LOG_H_
#define HEADWISE_MODEL_REPORT_METRICS_LOG_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headwise {

// One optimizer step. Steps count from 1: the number of updates done.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;           // mean over the step's tokens, nats
  double gradient_norm = 0;  // before clipping
  double clip_factor = 1;
  double muon_learning_rate = 0;
  double adamw_learning_rate = 0;
  bool skipped = false;     // a gradient was not finite: nothing was updated
  std::int64_t tokens = 0;  // of this step
  double seconds = 0;       // of this step, validation and saving not counted
  std::optional<double> validation_loss;
};

class MetricsLog {
 public:
  // Opens `path` for a run that goes on after `last_step` (0: from the start): later lines and a
  // torn last line of an earlier attempt are removed first, so that the file has no gap and no
  // double.
  static absl::StatusOr<MetricsLog> Open(const std::string& path, std::int64_t last_step);

  // Appends and flushes. kDataLoss with the path if the write fails (a full disk).
  absl::Status Append(const StepMetrics& metrics);

  const std::string& path() const { return path_; }

 private:
  MetricsLog(std::string path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::ofstream file_;
};

// Reads a file that MetricsLog wrote, complete lines only. kNotFound, or kDataLoss naming the line.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

}  // namespace headwise

#endif  // HEADWISE_MODEL_REPORT_METRICS_LOG_H_
