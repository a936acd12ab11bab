#include "model/report/line_plot.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using testing::HasSubstr;
using testing::Not;

int Count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(LinePlot, DrawsEverySeriesItsLabelsAndALegend) {
  LinePlot plot{"Loss & more",
                "step",
                "bits/byte",
                {{"a<b", {0, 1, 2}, {3, 2, 1}}, {"val", {0, 2}, {3, 1}, true}}};
  const std::string svg = RenderSvg(plot);
  EXPECT_THAT(svg, HasSubstr("Loss &amp; more"));
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_EQ(Count(svg, "stroke-width=\"1.6\""), 2);
  EXPECT_EQ(Count(svg, "<circle"), 2);
  EXPECT_THAT(svg, HasSubstr("M72.0 "));
  EXPECT_THAT(svg, HasSubstr("L776.0 "));
}

TEST(LinePlot, NonFinitePointsBreakTheLine) {
  const std::string svg = RenderSvg({"", "", "", {{"s", {0, 1, 2, 3}, {1, NAN, 2, 3}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const std::size_t path = svg.find("<path d=\"M72.0");
  ASSERT_NE(path, std::string::npos);
  EXPECT_THAT(svg, HasSubstr(" M541.3"));  // the pen goes down again at x = 2
}

TEST(LinePlot, NothingOnePointOrOneValueStillGivesAPicture) {
  for (const LineSeries& s :
       {LineSeries{"e", {}, {}}, LineSeries{"p", {5}, {7}}, LineSeries{"c", {0, 1}, {0, 0}}}) {
    const std::string svg = RenderSvg({"t", "x", "y", {s}});
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LinePlot, LongCurvesAreThinnedButKeepTheirExtremes) {
  LineSeries s{"long", {}, {}};
  for (int i = 0; i < 200000; ++i) {
    s.x.push_back(i);
    s.y.push_back(i == 77777 ? 100.0 : 0.0);
  }
  const std::string svg = RenderSvg({"t", "x", "y", {s}});
  EXPECT_LT(svg.size(), 200000u);
  EXPECT_THAT(svg, HasSubstr(" 61."));  // the spike reaches the top of the padded range
}

}  // namespace
}  // namespace headwise
