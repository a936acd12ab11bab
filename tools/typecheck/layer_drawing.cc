#include "tools/typecheck/layer_drawing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "model/report/progress.h"
#include "tools/typecheck/words.h"

namespace headwise::typecheck {
namespace {

constexpr double kMargin = 20, kBoxWidth = 34, kBoxHeight = 18, kBoxGap = 6, kPanelGap = 30;
constexpr double kTensorRow = 36, kStepRow = 34, kHeadingRow = 30, kColumnGap = 20;

// The ranks of one group, side by side.
struct Panel {
  std::string axis;  // "tp"
  std::vector<std::int64_t> ranks;
  double x = 0;
  double BoxX(std::size_t column) const {
    return x + static_cast<double>(column) * (kBoxWidth + kBoxGap);
  }
  std::size_t drawn() const {
    return std::min(ranks.size(), static_cast<std::size_t>(kDrawnRanks));
  }
  double width() const { return static_cast<double>(drawn()) * (kBoxWidth + kBoxGap) - kBoxGap; }
};

// One line of the picture.
struct Row {
  enum class Kind { kHeading, kTensor, kStep };
  Kind kind = Kind::kTensor;
  std::string name, detail;  // at the left
  std::string note, remark;  // at the right
  bool weight = false;
  LayoutType type = {};   // of a tensor
  std::string axis = {};  // of a step that moves data
};

std::vector<Panel> Panels(const Mesh& mesh) {
  std::vector<Panel> panels;
  for (const auto& [view, axis] :
       {std::pair(MeshView::kDense, "tp"), {MeshView::kDense, "cp"}, {MeshView::kExpert, "ep"}}) {
    const auto axes = mesh.Find(view, axis);
    if (!axes.ok() || axes->empty()) continue;
    panels.push_back({.axis = axis, .ranks = mesh.Group(view, *axes, 0)});
  }
  if (panels.empty()) panels.push_back({.axis = "", .ranks = {0}});
  return panels;
}

// Which of the shares that the panel's ranks have between them a rank has.
struct Share {
  std::size_t index = 0, count = 1;
};

Share ShareOf(const Panel& panel, const LayoutType& type, std::int64_t rank) {
  const auto place = [&](std::int64_t r) {
    std::vector<std::int64_t> at;
    for (int dim = 0; dim < type.rank(); ++dim) {
      for (const int axis : type.AxesOf(dim)) {
        at.push_back(type.mesh().Coordinate(type.view(), axis, r));
      }
    }
    return at;
  };
  std::set<std::vector<std::int64_t>> places;
  for (const std::int64_t r : panel.ranks) places.insert(place(r));
  return {static_cast<std::size_t>(std::distance(places.begin(), places.find(place(rank)))),
          places.size()};
}

// On the axes on which the panel's ranks differ.
AxisType TypeOf(const Panel& panel, const LayoutType& type) {
  std::set<AxisType> types;
  for (int axis = 0; axis < static_cast<int>(type.axis_types().size()); ++axis) {
    for (const std::int64_t rank : panel.ranks) {
      if (type.mesh().Coordinate(type.view(), axis, rank) !=
          type.mesh().Coordinate(type.view(), axis, panel.ranks[0])) {
        types.insert(type.axis_type(axis));
      }
    }
  }
  for (const AxisType first :
       {AxisType::kPartial, AxisType::kVarying, AxisType::kShard, AxisType::kInvariant}) {
    if (types.contains(first)) return first;
  }
  return AxisType::kReplicate;
}

std::string ShareNote(const LayoutType& type) {
  return absl::StrCat(AxesText(type), ", ", FormatBytes(static_cast<double>(type.LocalBytes(0))),
                      " a rank");
}

class LayerRows {
 public:
  LayerRows(const LayoutChecker& checker, std::int64_t layer)
      : checker_(checker), prefix_(absl::StrCat("layers.", layer, ".")) {}

  std::vector<Row> Rows() {
    std::vector<std::string> modules;
    std::map<std::string, std::vector<Row>> weights, boundaries;
    const auto module_of = [&](const std::string& path) {
      const std::string rest = path.substr(prefix_.size());
      std::string module = rest.substr(0, rest.find('.'));
      if (std::find(modules.begin(), modules.end(), module) == modules.end()) {
        modules.push_back(module);
      }
      return module;
    };
    for (const auto& [path, type] : checker_.leaves()) {
      if (!absl::StartsWith(path, prefix_)) continue;
      weights[module_of(path)].push_back(Tensor(path, "", true, type));
    }
    std::map<std::string, std::vector<Row>> first;  // what stands above the weights
    for (const auto& crossing : checker_.crossings()) {
      if (crossing.backward || !absl::StartsWith(crossing.boundary, prefix_)) continue;
      const std::string module = module_of(crossing.boundary);
      const bool in = crossing.boundary == absl::StrCat(prefix_, module, ".in");
      auto& rows = in ? first[module] : boundaries[module];
      for (Row& row : Crossing(crossing)) rows.push_back(std::move(row));
    }
    std::vector<Row> rows;
    for (const std::string& module : modules) {
      std::vector<Row> all = std::move(first[module]);
      for (auto* more : {&weights[module], &boundaries[module]}) {
        all.insert(all.end(), std::make_move_iterator(more->begin()),
                   std::make_move_iterator(more->end()));
      }
      if (all.size() > 1) rows.push_back({.kind = Row::Kind::kHeading, .name = module});
      rows.insert(rows.end(), std::make_move_iterator(all.begin()),
                  std::make_move_iterator(all.end()));
    }
    return rows;
  }

 private:
  Row Tensor(const std::string& path, const char* when, bool weight, const LayoutType& type) const {
    return {.kind = Row::Kind::kTensor,
            .name = absl::StrCat(path.substr(prefix_.size()), when),
            .detail = ShapeText(type),
            .note = ShareNote(type),
            .weight = weight,
            .type = type};
  }

  // What the backward of a boundary sends.
  std::string Backward(const std::string& boundary) const {
    std::vector<std::string> sent;
    for (const Communication& one : checker_.communication()) {
      if (!one.backward || one.boundary != boundary) continue;
      sent.push_back(absl::StrCat(Name(one.step.kind), "@", one.step.axis, " ",
                                  FormatBytes(static_cast<double>(one.bytes))));
    }
    return absl::StrCat("backward: ", sent.empty() ? "nothing moves" : absl::StrJoin(sent, ", "));
  }

  std::vector<Row> Crossing(const LayoutChecker::Crossing& crossing) const {
    std::vector<Row> steps;
    LayoutType at = crossing.before;
    for (const Step& step : checker_.plan().Forward(crossing.boundary)) {
      const auto axes = at.mesh().Find(at.view(), step.axis);
      const bool live = step.kind == StepKind::kReinterpretMesh || (axes.ok() && !axes->empty());
      const std::int64_t bytes = live ? BytesSent(step, at) : 0;
      if (live) {
        steps.push_back({.kind = Row::Kind::kStep,
                         .note = absl::StrCat(step.ToString(), ", ",
                                              bytes == 0 ? "nothing moves"
                                                         : FormatBytes(static_cast<double>(bytes))),
                         .axis = bytes == 0 ? "" : step.axis});
      }
      const auto next = Apply(step, at);
      HW_CHECK(next.ok()) << next.status();
      at = *next;
    }
    if (steps.empty()) return {Tensor(crossing.boundary, "", false, crossing.after)};
    steps.back().remark = Backward(crossing.boundary);
    std::vector<Row> rows = {Tensor(crossing.boundary, ", before", false, crossing.before)};
    rows.insert(rows.end(), steps.begin(), steps.end());
    rows.push_back(Tensor(crossing.boundary, ", after", false, crossing.after));
    return rows;
  }

  const LayoutChecker& checker_;
  const std::string prefix_;
};

// Puts rows under each other.
class Painter {
 public:
  Painter(const std::vector<Row>& rows, std::vector<Panel> panels)
      : rows_(rows), panels_(std::move(panels)) {
    double left = 0, right = 0;
    for (const Row& row : rows_) {
      left = std::max(
          {left, WidthOf(TextStyle::kName, row.name), WidthOf(TextStyle::kDetail, row.detail)});
      right = std::max(
          {right, WidthOf(TextStyle::kName, row.note), WidthOf(TextStyle::kDetail, row.remark)});
    }
    double x = kMargin + left + kColumnGap;
    for (Panel& panel : panels_) {
      panel.x = x;
      x += std::max(panel.width(), WidthOf(TextStyle::kHeading, Caption(panel))) + kPanelGap;
    }
    notes_x_ = x - kPanelGap + kColumnGap;
    drawing_.width = notes_x_ + right + kMargin;
  }

  LayerDrawing Paint(const std::string& title) {
    drawing_.title = title;
    y_ = kMargin + 16;
    Text(kMargin, y_, TextStyle::kTitle, title);
    // The title may be the widest of all.
    drawing_.width = std::max(drawing_.width, 2 * kMargin + WidthOf(TextStyle::kTitle, title));
    y_ += 14;
    Captions();
    for (const Row& row : rows_) {
      switch (row.kind) {
        case Row::Kind::kHeading:
          Text(kMargin, y_ + 20, TextStyle::kHeading, row.name);
          y_ += kHeadingRow;
          break;
        case Row::Kind::kTensor:
          TensorRow(row);
          break;
        case Row::Kind::kStep:
          StepRow(row);
          break;
      }
    }
    drawing_.height = y_ + kMargin;
    return std::move(drawing_);
  }

 private:
  static double WidthOf(TextStyle style, const std::string& text) {
    return TextWidth({.style = style, .text = text});
  }

  static std::string Caption(const Panel& panel) {
    if (panel.axis.empty()) return "one rank";
    return absl::StrCat(panel.axis, " group of rank 0",
                        panel.ranks.size() > panel.drawn()
                            ? absl::StrCat(": ", panel.drawn(), " of ", panel.ranks.size())
                            : "");
  }

  void Text(double x, double y, TextStyle style, const std::string& text, bool centred = false) {
    if (text.empty()) return;
    drawing_.texts.push_back({.x = x, .y = y, .style = style, .centred = centred, .text = text});
  }

  void Captions() {
    for (const Panel& panel : panels_) {
      Text(panel.x, y_ + 14, TextStyle::kHeading, Caption(panel));
      for (std::size_t c = 0; c < panel.drawn(); ++c) {
        Text(panel.BoxX(c) + kBoxWidth / 2, y_ + 32, TextStyle::kDetail,
             absl::StrCat(panel.ranks[c]), true);
      }
    }
    y_ += 38;
  }

  void TensorRow(const Row& row) {
    Text(kMargin, y_ + 14, TextStyle::kName, row.name);
    Text(kMargin, y_ + 28, TextStyle::kDetail, row.detail);
    Text(notes_x_, y_ + 20, TextStyle::kName, row.note);
    for (const Panel& panel : panels_) {
      const AxisType type = TypeOf(panel, row.type);
      for (std::size_t c = 0; c < panel.drawn(); ++c) {
        const Share share = ShareOf(panel, row.type, panel.ranks[c]);
        const auto count = static_cast<double>(share.count);
        drawing_.boxes.push_back({.x = panel.BoxX(c),
                                  .y = y_ + (kTensorRow - kBoxHeight) / 2,
                                  .width = kBoxWidth,
                                  .height = kBoxHeight,
                                  .weight = row.weight,
                                  .type = type,
                                  .share_begin = static_cast<double>(share.index) / count,
                                  .share_end = static_cast<double>(share.index + 1) / count,
                                  .rank = panel.ranks[c],
                                  .tensor = absl::StrCat(row.name, ": ", row.type.ToString())});
      }
    }
    y_ += kTensorRow;
  }

  void StepRow(const Row& row) {
    Text(notes_x_, y_ + 15, TextStyle::kName, row.note);
    Text(notes_x_, y_ + 29, TextStyle::kDetail, row.remark);
    for (const Panel& panel : panels_) {
      // Sub-axes of tp are steps among its ranks.
      const bool within = !panel.axis.empty() &&
                          (row.axis == panel.axis || absl::StartsWith(row.axis, panel.axis + "_"));
      if (!within) continue;
      drawing_.arrows.push_back({.x1 = panel.BoxX(0) + 4,
                                 .x2 = panel.BoxX(panel.drawn() - 1) + kBoxWidth - 4,
                                 .y = y_ + kStepRow / 2});
    }
    y_ += kStepRow;
  }

  const std::vector<Row>& rows_;
  std::vector<Panel> panels_;
  LayerDrawing drawing_;
  double notes_x_ = 0, y_ = 0;
};

}  // namespace

double TextWidth(const DrawnText& text) {
  static constexpr double kOfLetter[] = {9.2, 7.6, 7.0, 5.9};
  return kOfLetter[static_cast<int>(text.style)] * static_cast<double>(text.text.size());
}

double TextHeight(const DrawnText& text) {
  static constexpr double kHeights[] = {14, 12, 11, 9};
  return kHeights[static_cast<int>(text.style)];
}

LayerDrawing DrawLayer(const LayoutChecker& checker, std::int64_t layer) {
  HW_CHECK(checker.status().ok()) << checker.status();
  const std::vector<Row> rows = LayerRows(checker, layer).Rows();
  HW_CHECK(!rows.empty()) << "no layer " << layer;
  return Painter(rows, Panels(checker.mesh()))
      .Paint(absl::StrCat("Layer ", layer, " over ", checker.mesh().ToString()));
}

}  // namespace headwise::typecheck
