// LinePlot: curves as an SVG picture that any browser shows. For loss.svg and the figures under
// docs/.
//
//   LinePlot plot;
//   plot.title = "Loss";
//   plot.x_label = "step";
//   plot.series = {{"training", steps, losses}, {"validation", eval_steps, eval_losses}};
//   HW_RETURN_IF_ERROR(WriteFileAtomically(path, RenderSvg(plot)));
#ifndef HEADWISE_MODEL_REPORT_LINE_PLOT_H_
#define HEADWISE_MODEL_REPORT_LINE_PLOT_H_

#include <string>
#include <vector>

namespace headwise {

struct LineSeries {
  std::string name;
  std::vector<double>
      x = {},
      y = {};            // equal lengths (checked); a point that is not finite breaks the line
  bool markers = false;  // dots on the points: for few points
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<LineSeries> series;  // colours in order; eight before they repeat
};

// 800 x 480 px, light background, ticks at 1, 2 or 5 times a power of ten, a legend when there is
// more than one series. Curves of more than a few thousand points are thinned to their extremes per
// pixel column. Text is escaped.
std::string RenderSvg(const LinePlot& plot);

}  // namespace headwise

#endif  // HEADWISE_MODEL_REPORT_LINE_PLOT_H_
