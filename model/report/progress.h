// Progress: how far a training run is, for a person. On a terminal one live line; elsewhere a line
// every few steps.
//
//   step 120/400  30%  loss 2.31  |g| 0.82  lr 0.020  212 ms  19.3k tokens/s  MFU 41%  312 MiB  ETA 1:02
#ifndef HEADWISE_MODEL_REPORT_PROGRESS_H_
#define HEADWISE_MODEL_REPORT_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "model/report/metrics_log.h"

namespace headwise {

// "1:02:03", "4:05", "0:07"
std::string FormatDuration(double seconds);
// "12.3k", "1.25M", "512": three significant digits and a decimal prefix.
std::string FormatCount(double value);
// "312 MiB", "1.4 GiB"
std::string FormatBytes(double bytes);

// Resident memory of this process, now and at its largest, in bytes.
std::int64_t ResidentBytes();
std::int64_t PeakResidentBytes();

class Progress {
 public:
  // Writes to `out` (not owned). flops_per_token and peak_flops give the MFU; peak_flops 0 shows
  // n/a.
  Progress(std::FILE* out, std::int64_t first_step, std::int64_t total_steps,
           double flops_per_token, double peak_flops);

  // After each step.
  void Update(const StepMetrics& metrics);
  // A line of its own (validation, checkpoint), above the live line.
  void Message(const std::string& text);
  // Ends the live line.
  void Finish();

  double tokens_per_second() const { return tokens_per_second_; }

 private:
  std::string Line(const StepMetrics& metrics) const;

  std::FILE* out_;
  bool terminal_;
  bool live_ = false;  // the cursor stands on a live line
  std::int64_t first_step_, total_steps_, every_;
  double flops_per_token_, peak_flops_;
  double tokens_per_second_ = 0;  // exponential moving averages
  double seconds_per_step_ = 0;
  std::int64_t updates_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_REPORT_PROGRESS_H_
