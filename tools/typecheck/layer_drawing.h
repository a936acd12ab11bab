// LayerDrawing: one layer of a checked model as boxes, texts and arrows on a plane: from top to
// bottom its weights and the activations at its boundaries, from left to right the ranks of a tp
// group and, where there are any, those of a cp group and of an ep group.
//
//   const LayerDrawing drawing = DrawLayer(checker, 0);
//   HW_RETURN_IF_ERROR(WriteFileAtomically("layer.svg", RenderSvg(drawing)));     // svg.h
//
// A box is a tensor on a rank, its width the whole of it, and the filled part the rank's share among
// the ranks of its group. Between two rows of activations stands what a step moves: an arrow over the
// ranks that take part, and how many bytes each sends. No box and no text lies over another.
#ifndef HEADWISE_TOOLS_TYPECHECK_LAYER_DRAWING_H_
#define HEADWISE_TOOLS_TYPECHECK_LAYER_DRAWING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_type.h"

namespace headwise::typecheck {

struct DrawnBox {
  double x = 0, y = 0, width = 0, height = 0;
  bool weight = false;                    // or an activation
  AxisType type = AxisType::kReplicate;   // on the axes of the group
  double share_begin = 0, share_end = 1;  // of the width
  std::int64_t rank = 0;
  std::string tensor;  // path and type
};

enum class TextStyle { kTitle, kHeading, kName, kDetail };

struct DrawnText {
  double x = 0, y = 0;  // of the baseline
  TextStyle style = TextStyle::kName;
  bool centred = false;  // x is the middle; otherwise the left end
  std::string text;
};

struct DrawnArrow {
  double x1 = 0, x2 = 0, y = 0;  // heads at both ends
};

struct LayerDrawing {
  double width = 0, height = 0;
  std::string title;
  std::vector<DrawnBox> boxes;
  std::vector<DrawnText> texts;
  std::vector<DrawnArrow> arrows;
};

// Ranks of a group that are drawn; a larger group says how many it has.
inline constexpr std::int64_t kDrawnRanks = 8;

// The width that a text is given, and its height above the baseline.
double TextWidth(const DrawnText& text);
double TextHeight(const DrawnText& text);

// Of a checker that has accepted a pass; the layer exists (checked).
LayerDrawing DrawLayer(const LayoutChecker& checker, std::int64_t layer);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_LAYER_DRAWING_H_
