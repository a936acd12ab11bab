// A LayerDrawing as an SVG picture that any browser shows, on a light or dark background as the
// reader has it.
#ifndef HEADWISE_TOOLS_TYPECHECK_SVG_H_
#define HEADWISE_TOOLS_TYPECHECK_SVG_H_

#include <string>

#include "tools/typecheck/layer_drawing.h"

namespace headwise::typecheck {

// With a legend below the layer. Text is escaped; a box names its tensor and rank when pointed at.
std::string RenderSvg(const LayerDrawing& drawing);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_SVG_H_
