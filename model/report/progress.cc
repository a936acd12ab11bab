#include "model/report/progress.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/str_format.h"

namespace headwise {
namespace {

// Weight of the newest step in the moving averages.
constexpr double kNewest = 0.1;
// Lines of a run that does not go to a terminal.
constexpr std::int64_t kLines = 40;

}  // namespace

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const std::int64_t s = std::llround(seconds);
  if (s >= 3600) return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
  return absl::StrFormat("%d:%02d", s / 60, s % 60);
}

std::string FormatCount(double value) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  int i = 0;
  while (std::abs(value) >= 999.5 && i < 5) {
    value /= 1000;
    ++i;
  }
  if (i == 0 && value == std::floor(value)) return absl::StrFormat("%.0f", value);
  const int decimals = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, value, prefixes[i]);
}

std::string FormatBytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int i = 0;
  while (bytes >= 1024 && i < 4) {
    bytes /= 1024;
    ++i;
  }
  return absl::StrFormat("%.*f %s", i > 2 || (i > 0 && bytes < 10) ? 1 : 0, bytes, units[i]);
}

std::int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return statm ? resident * sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

Progress::Progress(std::FILE* out, std::int64_t first_step, std::int64_t total_steps,
                   double flops_per_token, double peak_flops)
    : out_(out),
      terminal_(isatty(fileno(out)) != 0),
      first_step_(first_step),
      total_steps_(total_steps),
      every_(std::max<std::int64_t>(1, (total_steps - first_step) / kLines)),
      flops_per_token_(flops_per_token),
      peak_flops_(peak_flops) {}

std::string Progress::Line(const StepMetrics& m) const {
  const double fraction = static_cast<double>(m.step) / static_cast<double>(total_steps_);
  const std::string mfu =
      peak_flops_ > 0
          ? absl::StrFormat("%.0f%%", 100 * tokens_per_second_ * flops_per_token_ / peak_flops_)
          : "n/a";
  return absl::StrFormat(
      "step %d/%d  %.0f%%  loss %.4f  |g| %.3g  lr %.3g  %.0f ms  %s tokens/s  MFU %s  %s  ETA "
      "%s%s",
      m.step, total_steps_, 100 * fraction, m.loss, m.gradient_norm, m.muon_learning_rate,
      1e3 * m.seconds, FormatCount(tokens_per_second_), mfu,
      FormatBytes(static_cast<double>(ResidentBytes())),
      FormatDuration(seconds_per_step_ * static_cast<double>(total_steps_ - m.step)),
      m.skipped ? "  SKIPPED (non-finite gradient)" : "");
}

void Progress::Update(const StepMetrics& m) {
  const double rate = static_cast<double>(m.tokens) / std::max(m.seconds, 1e-9);
  // The first step pays for what later ones find ready: it starts the averages but leaves at once.
  const double weight = updates_ <= 1 ? 1.0 : kNewest;
  tokens_per_second_ += weight * (rate - tokens_per_second_);
  seconds_per_step_ += weight * (m.seconds - seconds_per_step_);
  ++updates_;
  if (terminal_) {
    std::fprintf(out_, "\r\033[K%s", Line(m).c_str());
    live_ = true;
    if (m.skipped) Message("");
  } else if (m.skipped || m.step == first_step_ + 1 || m.step == total_steps_ ||
             m.step % every_ == 0) {
    std::fprintf(out_, "%s\n", Line(m).c_str());
  }
  std::fflush(out_);
}

void Progress::Message(const std::string& text) {
  if (live_) std::fputs("\n", out_);
  live_ = false;
  if (!text.empty()) std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void Progress::Finish() { Message(""); }

}  // namespace headwise
