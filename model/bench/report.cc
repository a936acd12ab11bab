#include "model/bench/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "model/report/progress.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

std::vector<double> Scaled(absl::Span<const double> values, double factor) {
  std::vector<double> scaled(values.begin(), values.end());
  for (double& value : scaled) value *= factor;
  return scaled;
}

// A number that is exact.
Summary Exact(double value) { return {.median = value, .mean = value, .min = value, .max = value}; }

// work / seconds over floor_work / floor_seconds, round by round.
std::vector<double> Shares(double work, absl::Span<const double> seconds, double floor_work,
                           absl::Span<const double> floor_seconds) {
  return Scaled(Ratios(floor_seconds, seconds), work / floor_work);
}

// Whether the floor is a product, and not a copy.
bool ByProduct(const UnitResult& r) { return r.floor_flops > 0; }

std::vector<double> Shares(const UnitResult& r, absl::Span<const double> seconds) {
  return ByProduct(r) ? Shares(r.flops, seconds, r.floor_flops, r.floor)
                      : Shares(r.bytes, seconds, r.floor_bytes, r.floor);
}

// One sample has no spread.
std::string SpreadText(const Summary& s) {
  return s.samples == 1 ? "-" : absl::StrFormat("%.1f %%", 100 * s.spread);
}

}  // namespace

std::vector<Figure> Figures(const UnitResult& r) {
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const char* unit,
                       const std::vector<double>& samples) {
    figures.push_back({.name = absl::StrCat(r.unit, "/", name),
                       .unit = unit,
                       .tokens = r.tokens,
                       .rows = r.rows,
                       .summary = Summarize(samples)});
  };
  for (const auto& [variant, seconds] :
       {std::pair("fused", &r.fused), std::pair("unfused", &r.unfused)}) {
    if (seconds->empty()) continue;
    add(absl::StrCat(variant, "/time"), "ms", Scaled(*seconds, 1e3));
    add(absl::StrCat(variant, "/rate"), "tokens/s", Rates(static_cast<double>(r.done), *seconds));
    add(absl::StrCat(variant, ByProduct(r) ? "/share_of_product" : "/share_of_copy"), "ratio",
        Shares(r, *seconds));
  }
  if (!r.unfused.empty()) add("unfused_over_fused", "ratio", Ratios(r.unfused, r.fused));
  if (ByProduct(r)) {
    add("product", "GFLOP/s", Rates(r.floor_flops * 1e-9, r.floor));
  } else {
    add("copy", "GB/s", Rates(r.floor_bytes * 1e-9, r.floor));
  }
  return figures;
}

std::vector<Figure> Figures(const KernelResult& r) {
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const char* unit, const Summary& summary) {
    figures.push_back({.name = absl::StrCat("kernel/", r.name, "/", name),
                       .unit = unit,
                       .tokens = r.tokens,
                       .summary = summary});
  };
  const auto bytes = static_cast<double>(r.bytes);
  add("calls", "1", Exact(static_cast<double>(r.calls)));
  add("bytes", "B", Exact(bytes));
  add("time", "ms", Summarize(Scaled(r.seconds, 1e3)));
  add("bandwidth", "GB/s", Summarize(Rates(bytes * 1e-9, r.seconds)));
  add("share_of_copy", "ratio", Summarize(Shares(bytes, r.seconds, r.copied, r.copy)));
  if (!r.product.empty()) {
    add("share_of_product", "ratio",
        Summarize(Shares(r.flops, r.seconds, r.floor_flops, r.product)));
  }
  return figures;
}

std::string ToJson(const Figure& figure, const BenchContext& context) {
  nlohmann::ordered_json json;
  json["name"] = figure.name;
  json["unit"] = figure.unit;
  json["value"] = figure.summary.median;
  json["spread"] = figure.summary.spread;
  if (figure.summary.samples == 1) json["spread"] = nullptr;
  json["mean"] = figure.summary.mean;
  json["min"] = figure.summary.min;
  json["max"] = figure.summary.max;
  json["samples"] = figure.summary.samples;
  json["tokens"] = figure.tokens;
  json["rows"] = figure.rows;
  json["preset"] = context.preset;
  json["layers"] = context.layers;
  json["dtype"] = context.dtype;
  json["device"] = context.device;
  json["threads"] = context.threads;
  // A path may be no UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string UnitHead() {
  return absl::StrFormat("%-8s %8s %5s  %-8s %10s %10s %8s %10s  %s\n", "unit", "tokens", "rows",
                         "qkv", "ms", "mean", "spread", "tokens/s", "share of");
}

std::string UnitLines(const UnitResult& r) {
  std::string lines;
  for (const auto& [variant, seconds] :
       {std::pair("fused", &r.fused), std::pair("unfused", &r.unfused)}) {
    if (seconds->empty()) continue;
    const Summary time = Summarize(*seconds);
    const double rate = Summarize(Rates(static_cast<double>(r.done), *seconds)).median;
    const double share = Summarize(Shares(r, *seconds)).median;
    absl::StrAppendFormat(&lines, "%-8s %8d %5d  %-8s %10.3f %10.3f %8s %10s  %s %.2f", r.unit,
                          r.tokens, r.rows, variant, 1e3 * time.median, 1e3 * time.mean,
                          SpreadText(time), FormatCount(rate), ByProduct(r) ? "product" : "copy",
                          share);
    if (seconds == &r.unfused) {
      const Summary ratio = Summarize(Ratios(r.unfused, r.fused));
      absl::StrAppendFormat(&lines, "; unfused / fused %.3f, spread %s", ratio.median,
                            SpreadText(ratio));
    }
    lines += "\n";
  }
  return lines;
}

std::string KernelHead() {
  return absl::StrFormat("%-32s %6s %12s %10s %8s %8s %8s %8s\n", "kernel", "calls", "bytes", "ms",
                         "spread", "GB/s", "of copy", "of GEMM");
}

std::string KernelLine(const KernelResult& r) {
  const Summary time = Summarize(r.seconds);
  const auto bytes = static_cast<double>(r.bytes);
  return absl::StrFormat(
      "%-32s %6d %12s %10.3f %8s %8.2f %8.2f %8s\n", r.name, r.calls, FormatBytes(bytes),
      1e3 * time.median, SpreadText(time), bytes * 1e-9 / time.median,
      Summarize(Shares(bytes, r.seconds, r.copied, r.copy)).median,
      r.product.empty()
          ? "-"
          : absl::StrFormat(
                "%.2f", Summarize(Shares(r.flops, r.seconds, r.floor_flops, r.product)).median));
}

}  // namespace headwise
