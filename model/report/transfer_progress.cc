#include "model/report/transfer_progress.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/report/progress.h"

namespace headwise {

TransferProgress::TransferProgress(std::FILE* out, std::string verb, std::string unit,
                                   std::int64_t items, double bytes)
    : out_(out != nullptr && isatty(fileno(out)) != 0 ? out : nullptr),
      verb_(std::move(verb)),
      unit_(std::move(unit)),
      items_(items),
      bytes_(bytes),
      start_(Clock::now()),
      printed_(start_) {}

TransferProgress::~TransferProgress() {
  if (live_) std::fputc('\n', out_);
}

double TransferProgress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::string TransferProgress::Line() const {
  const double rate = seconds() > 0 ? bytes_done_ / seconds() : 0;
  return absl::StrFormat("%d/%d %s  %s of %s  %.0f%%  %s/s  ETA %s", items_done_, items_, unit_,
                         FormatBytes(bytes_done_), FormatBytes(bytes_),
                         bytes_ > 0 ? 100 * bytes_done_ / bytes_ : 100.0, FormatBytes(rate),
                         rate > 0 ? FormatDuration((bytes_ - bytes_done_) / rate) : "n/a");
}

void TransferProgress::Add(double bytes) {
  ++items_done_;
  bytes_done_ += bytes;
  if (out_ == nullptr) return;
  const Clock::time_point now = Clock::now();
  if (items_done_ < items_ && now - printed_ < std::chrono::milliseconds(100)) return;
  printed_ = now;
  live_ = true;
  // Back to the beginning of the line, and what is left of the last one goes.
  std::fprintf(out_, "\r%s  %s\033[K", verb_.c_str(), Line().c_str());
  std::fflush(out_);
}

}  // namespace headwise
