#include "model/report/line_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/check.h"

namespace headwise {
namespace {

constexpr double kWidth = 800, kHeight = 480;
constexpr double kLeft = 72, kRight = 24, kTop = 44, kBottom = 56;
constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#8d5fb0",
                                    "#c77b22", "#4c566a", "#0f9bb0", "#b04a86"};

// The data range of one axis and its place in the picture.
struct Axis {
  double low, high;        // data
  double at_low, at_high;  // pixels

  double Pixel(double value) const {
    return at_low + (value - low) / (high - low) * (at_high - at_low);
  }
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  // Never empty, never a single value.
  Range Padded(double fraction) const {
    if (!(low <= high)) return {0, 1};
    const double pad =
        high > low ? fraction * (high - low) : std::max(1e-12, 0.05 * std::abs(low) + (low == 0));
    return {low - pad, high + pad};
  }
};

double TickStep(double span) {
  const double raw = span / 6;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (m * power >= raw) return m * power;
  }
  return 10 * power;
}

std::string Escape(const std::string& s) {
  return absl::StrReplaceAll(s, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Text(double x, double y, const char* anchor, int size, const std::string& text,
                 const std::string& extra = "") {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\"%s>%s</text>\n", x, y, anchor,
      size, extra, Escape(text));
}

std::string Ticks(const Axis& x, const Axis& y) {
  std::string svg;
  const double x_step = TickStep(x.high - x.low), y_step = TickStep(y.high - y.low);
  for (double k = std::ceil(x.low / x_step); k * x_step <= x.high; ++k) {
    const double at = x.Pixel(k * x_step);
    absl::StrAppendFormat(
        &svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e6e8ec\"/>\n", at,
        y.at_low, at, y.at_high);
    svg += Text(at, y.at_low + 18, "middle", 12, absl::StrFormat("%g", k * x_step));
  }
  for (double k = std::ceil(y.low / y_step); k * y_step <= y.high; ++k) {
    const double at = y.Pixel(k * y_step);
    absl::StrAppendFormat(
        &svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e6e8ec\"/>\n",
        x.at_low, at, x.at_high, at);
    svg += Text(x.at_low - 8, at + 4, "end", 12, absl::StrFormat("%g", k * y_step));
  }
  return svg;
}

// Points of one unbroken run that fall into one pixel column become its first, lowest, highest and
// last.
std::string Path(const LineSeries& s, const Axis& x, const Axis& y) {
  std::string path;
  bool pen_down = false;
  for (std::size_t i = 0; i < s.x.size();) {
    if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) {
      pen_down = false;
      ++i;
      continue;
    }
    const double column = std::floor(x.Pixel(s.x[i]) * 2);
    std::size_t end = i, lowest = i, highest = i;
    for (; end < s.x.size() && std::isfinite(s.x[end]) && std::isfinite(s.y[end]) &&
           std::floor(x.Pixel(s.x[end]) * 2) == column;
         ++end) {
      if (s.y[end] < s.y[lowest]) lowest = end;
      if (s.y[end] > s.y[highest]) highest = end;
    }
    std::vector<std::size_t> kept = {i, std::min(lowest, highest), std::max(lowest, highest),
                                     end - 1};
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::size_t k : kept) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? " L" : " M", x.Pixel(s.x[k]),
                            y.Pixel(s.y[k]));
      pen_down = true;
    }
    i = end;
  }
  return path;
}

}  // namespace

std::string RenderSvg(const LinePlot& plot) {
  Range xs, ys;
  for (const LineSeries& s : plot.series) {
    HW_CHECK_EQ(s.x.size(), s.y.size()) << "series '" << s.name << "'";
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) continue;
      xs.Add(s.x[i]);
      ys.Add(s.y[i]);
    }
  }
  const Range xr = xs.Padded(0), yr = ys.Padded(0.05);
  const Axis x{xr.low, xr.high, kLeft, kWidth - kRight};
  const Axis y{yr.low, yr.high, kHeight - kBottom, kTop};

  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
      "font-family=\"system-ui, sans-serif\" fill=\"#2b303b\">\n<rect width=\"100%%\" "
      "height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += Text(kWidth / 2, 26, "middle", 16, plot.title, " font-weight=\"600\"");
  svg += Ticks(x, y);
  absl::StrAppendFormat(&svg,
                        "<path d=\"M%.1f %.1f V%.1f H%.1f\" fill=\"none\" stroke=\"#8a919e\"/>\n",
                        kLeft, kTop, kHeight - kBottom, kWidth - kRight);
  svg += Text((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", 13, plot.x_label);
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg += Text(18, middle, "middle", 13, plot.y_label,
              absl::StrFormat(" transform=\"rotate(-90 18 %.1f)\"", middle));
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const LineSeries& s = plot.series[i];
    const char* colour = kColours[i % std::size(kColours)];
    const std::string path = Path(s, x, y);
    if (!path.empty()) {
      absl::StrAppendFormat(&svg,
                            "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" "
                            "stroke-linejoin=\"round\"/>\n",
                            path.substr(1), colour);
    }
    for (std::size_t k = 0; s.markers && k < s.x.size(); ++k) {
      if (!std::isfinite(s.x[k]) || !std::isfinite(s.y[k])) continue;
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                            x.Pixel(s.x[k]), y.Pixel(s.y[k]), colour);
    }
    if (plot.series.size() > 1) {
      const double row = kTop + 18 + 18 * static_cast<double>(i);
      absl::StrAppendFormat(&svg,
                            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                            "stroke-width=\"3\"/>\n",
                            kWidth - kRight - 30, row - 4, kWidth - kRight - 8, row - 4, colour);
      svg += Text(kWidth - kRight - 38, row, "end", 12, s.name);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace headwise
