#include "tools/typecheck/svg.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace headwise::typecheck {
namespace {

constexpr double kLegendRow = 22, kLegendWidth = 620;

// One class per type; P is hatched besides, so that colour is not all that tells them apart. Colours
// are written out twice: not every program that shows SVG knows variables.
constexpr char kStyle[] = R"(<style>
  text { fill: #22272e; font-family: system-ui, sans-serif; font-size: 12px; }
  .title { font-size: 16px; font-weight: 600; }
  .heading { font-size: 13px; font-weight: 600; }
  .detail { font-size: 10px; fill: #656d76; }
  .letter { font-size: 10px; text-anchor: middle; }
  .centred { text-anchor: middle; }
  .paper { fill: #ffffff; }
  .whole { fill: none; stroke: #9aa3ad; }
  .R { fill: #8fbfec; } .I { fill: #8ad3b1; } .S { fill: #f5c179; } .P { fill: #ee9f9f; }
  .V { fill: #c3c8ce; }
  .hatch { stroke: #22272e; stroke-opacity: 0.45; }
  .arrow { stroke: #22272e; stroke-width: 1.5; }
  .head { fill: #22272e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; }
    .detail { fill: #9aa4af; }
    .paper { fill: #14181d; }
    .whole { stroke: #5d6671; }
    .R { fill: #2f639b; } .I { fill: #2a7a58; } .S { fill: #8f6216; } .P { fill: #943f3f; }
    .V { fill: #555c64; }
    .hatch { stroke: #e6eaef; }
    .arrow { stroke: #e6eaef; }
    .head { fill: #e6eaef; }
  }
</style>
<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse">
<path class="hatch" d="M0 5 L5 0"/></pattern></defs>
)";

std::string Escape(const std::string& s) {
  return absl::StrReplaceAll(s, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

const char* ClassOf(TextStyle style) {
  static constexpr const char* kClasses[] = {"title", "heading", "name", "detail"};
  return kClasses[static_cast<int>(style)];
}

std::string Rect(const char* classes, double x, double y, double width, double height, double rx,
                 const char* extra = "") {
  return absl::StrFormat(
      "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" rx=\"%.0f\"%s/>",
      classes, x, y, width, height, rx, extra);
}

std::string Box(const DrawnBox& box) {
  const double rx = box.weight ? 0 : 5;
  const double x = box.x + box.share_begin * box.width;
  const double width = (box.share_end - box.share_begin) * box.width;
  // A small share has square corners: rounded ones would leave nothing of it.
  const double share_rx = width < box.width ? 0 : rx;
  std::string svg =
      absl::StrCat("<g><title>", Escape(absl::StrCat("rank ", box.rank, ": ", box.tensor)),
                   "</title>", Rect(Name(box.type), x, box.y, width, box.height, share_rx));
  if (box.type == AxisType::kPartial) {
    svg += Rect("", x, box.y, width, box.height, share_rx, " fill=\"url(#hatch)\"");
  }
  svg += Rect("whole", box.x, box.y, box.width, box.height, rx);
  return svg + absl::StrFormat("<text class=\"letter\" x=\"%.2f\" y=\"%.2f\">%s</text></g>\n",
                               box.x + box.width / 2, box.y + box.height - 5, Name(box.type));
}

std::string Text(const DrawnText& text) {
  return absl::StrFormat("<text class=\"%s%s\" x=\"%.2f\" y=\"%.2f\">%s</text>\n",
                         ClassOf(text.style), text.centred ? " centred" : "", text.x, text.y,
                         Escape(text.text));
}

std::string Arrow(const DrawnArrow& arrow) {
  const auto head = [&](double x, double direction) {
    return absl::StrFormat("<path class=\"head\" d=\"M%.2f %.2f l%.1f -4 v8 z\"/>", x, arrow.y,
                           -7 * direction);
  };
  return absl::StrFormat("<line class=\"arrow\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>",
                         arrow.x1 + 5, arrow.y, arrow.x2 - 5, arrow.y) +
         head(arrow.x1, -1) + head(arrow.x2, 1) + "\n";
}

std::string LegendAt(double y) {
  struct Entry {
    AxisType type;
    const char* text;
  };
  static constexpr Entry kEntries[] = {
      {AxisType::kReplicate, "replicate: the same data, used by each rank in its own way"},
      {AxisType::kInvariant, "invariant: the same data, one computation that all ranks repeat"},
      {AxisType::kShard,
       "sharded: the filled part is the rank's share of what the ranks of its column group have"},
      {AxisType::kPartial, "partial: the sum over the ranks is the value"},
      {AxisType::kVarying, "varying: different data"}};
  std::string svg;
  for (const Entry& entry : kEntries) {
    const bool shard = entry.type == AxisType::kShard;
    svg += Box({.x = 20,
                .y = y,
                .width = 34,
                .height = 18,
                .type = entry.type,
                .share_end = shard ? 0.5 : 1,
                .tensor = "legend"});
    svg += Text({.x = 64, .y = y + 13, .text = entry.text});
    y += kLegendRow;
  }
  svg += Text({.x = 20,
               .y = y + 13,
               .style = TextStyle::kDetail,
               .text = "Square boxes are weights, rounded ones activations. Arrows: data that move "
                       "on the way forward, bytes sent by each rank."});
  return svg;
}

}  // namespace

std::string RenderSvg(const LayerDrawing& drawing) {
  const double width = std::max(drawing.width, kLegendWidth);
  const double height = drawing.height + 6 * kLegendRow + 20;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
      "%.0f\" role=\"img\">\n<title>%s</title>\n",
      width, height, width, height, Escape(drawing.title));
  absl::StrAppend(&svg, kStyle, Rect("paper", 0, 0, width, height, 0), "\n");
  for (const DrawnBox& box : drawing.boxes) svg += Box(box);
  for (const DrawnArrow& arrow : drawing.arrows) svg += Arrow(arrow);
  for (const DrawnText& text : drawing.texts) svg += Text(text);
  return absl::StrCat(svg, LegendAt(drawing.height), "</svg>\n");
}

}  // namespace headwise::typecheck
