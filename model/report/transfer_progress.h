// TransferProgress: how far a long reading or writing is, as one live line on a terminal, and
// nothing elsewhere.
//
//   convert  312/1043 tensors  4.2 GiB of 15.0 GiB  28%  310 MiB/s  ETA 0:35
#ifndef HEADWISE_MODEL_REPORT_TRANSFER_PROGRESS_H_
#define HEADWISE_MODEL_REPORT_TRANSFER_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace headwise {

class TransferProgress {
 public:
  // `out` (not owned) may be null: silent. It is also silent where it is no terminal.
  TransferProgress(std::FILE* out, std::string verb, std::string unit, std::int64_t items,
                   double bytes);
  // Ends the live line.
  ~TransferProgress();
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  // One more item, of so many bytes, is done. Prints ten times a second at most.
  void Add(double bytes);

  std::int64_t items_done() const { return items_done_; }
  double bytes_done() const { return bytes_done_; }
  double seconds() const;
  // "312/1043 tensors  4.2 GiB of 15.0 GiB  28%  310 MiB/s  ETA 0:35"
  std::string Line() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;  // null: silent
  std::string verb_, unit_;
  std::int64_t items_, items_done_ = 0;
  double bytes_, bytes_done_ = 0;
  Clock::time_point start_, printed_;
  bool live_ = false;  // the cursor stands on the live line
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_REPORT_TRANSFER_PROGRESS_H_
