#include "tools/typecheck/layer_drawing.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tools/typecheck/svg.h"
#include "tools/typecheck/testing.h"

namespace headwise::typecheck {
namespace {

struct Area {
  double left, top, right, bottom;
  std::string what;
};

std::vector<Area> AreasOf(const LayerDrawing& drawing) {
  std::vector<Area> areas;
  for (const DrawnBox& box : drawing.boxes) {
    areas.push_back({box.x, box.y, box.x + box.width, box.y + box.height,
                     absl::StrCat("box ", box.tensor, " of rank ", box.rank)});
  }
  for (const DrawnText& text : drawing.texts) {
    const double left = text.centred ? text.x - TextWidth(text) / 2 : text.x;
    areas.push_back({left, text.y - TextHeight(text), left + TextWidth(text), text.y,
                     absl::StrCat("text ", text.text)});
  }
  for (const DrawnArrow& arrow : drawing.arrows) {
    areas.push_back({arrow.x1, arrow.y - 4, arrow.x2, arrow.y + 4, "arrow"});
  }
  return areas;
}

LayerDrawing Draw(const CheckRequest& request, std::int64_t layer = 0) {
  return DrawLayer(*ReportFor(request).checked->checker, layer);
}

void ExpectNothingOverlaps(const LayerDrawing& drawing) {
  const std::vector<Area> areas = AreasOf(drawing);
  for (std::size_t i = 0; i < areas.size(); ++i) {
    const Area& a = areas[i];
    EXPECT_TRUE(a.left >= 0 && a.top >= 0 && a.right <= drawing.width && a.bottom <= drawing.height)
        << a.what;
    for (std::size_t j = 0; j < i; ++j) {
      const Area& b = areas[j];
      EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
          << a.what << " over " << b.what;
    }
  }
}

TEST(LayerDrawing, NothingLiesOverAnythingElse) {
  for (const Preset& preset : ListPresets()) {
    for (const char* mesh : {"", "tp=2", "dp=2,cp=2,tp=2,ep=4"}) {
      for (const bool sp : {false, true}) {
        SCOPED_TRACE(absl::StrCat(preset.name, " ", mesh, " ", sp));
        ExpectNothingOverlaps(Draw(RequestFor(preset.name, mesh, sp)));
      }
    }
  }
  ExpectNothingOverlaps(Draw(RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32"), 61));
}

TEST(LayerDrawing, SharesOfAGroupMakeTheWhole) {
  const LayerDrawing drawing = Draw(RequestFor("muse_spark", "tp=8"));
  double filled = 0;
  for (const DrawnBox& box : drawing.boxes) {
    if (!absl::StartsWith(box.tensor, "attention.wqkv: ")) continue;
    EXPECT_TRUE(box.weight);
    EXPECT_EQ(box.type, AxisType::kShard);
    EXPECT_DOUBLE_EQ(box.share_begin, filled);
    filled = box.share_end;
  }
  EXPECT_DOUBLE_EQ(filled, 1);
}

TEST(LayerDrawing, ReplicatedKvGroupsAreTheSameShare) {
  // Two kv groups on four ranks: each is on two of them.
  std::vector<double> begins;
  for (const DrawnBox& box : Draw(RequestFor("muse_spark_tiny", "tp=4")).boxes) {
    if (absl::StartsWith(box.tensor, "attention.wqkv: ")) begins.push_back(box.share_begin);
  }
  EXPECT_EQ(begins, (std::vector<double>{0, 0, 0.5, 0.5}));
}

TEST(LayerDrawing, ArrowsAreWhereDataMove) {
  EXPECT_TRUE(Draw(RequestFor("muse_spark_tiny", "")).arrows.empty());
  // attention.out and ffn.out are all_reduced or gathered over tp; attention.in moves nothing.
  EXPECT_EQ(Draw(RequestFor("muse_glimmer_tiny", "tp=2")).arrows.size(), 2);
  // With sequence parallelism both ways into the layer gather besides.
  EXPECT_EQ(Draw(RequestFor("muse_glimmer_tiny", "tp=2", true)).arrows.size(), 4);
  // Keys and values over cp.
  EXPECT_EQ(Draw(RequestFor("muse_glimmer_tiny", "cp=2,tp=2")).arrows.size(), 4);
  bool named = false;
  for (const DrawnText& text : Draw(RequestFor("muse_glimmer_tiny", "cp=2,tp=2")).texts) {
    named = named || absl::StartsWith(text.text, "all_gather(F32)@cp -> R, ");
  }
  EXPECT_TRUE(named);
}

TEST(LayerDrawing, LargeGroupsAreCutAndSaySo) {
  const LayerDrawing drawing = Draw(RequestFor("muse_spark", "tp=16"));
  const bool said =
      std::any_of(drawing.texts.begin(), drawing.texts.end(),
                  [](const DrawnText& text) { return text.text == "tp group of rank 0: 8 of 16"; });
  EXPECT_TRUE(said);
  for (const DrawnBox& box : drawing.boxes) EXPECT_LT(box.rank, kDrawnRanks);
}

// Whether tags are closed in the order in which they were opened, attributes are quoted, and no
// bare & or < stands in a text. "" or what is wrong.
std::string XmlProblem(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      const std::string entity = xml.substr(i, xml.find(';', i) - i + 1);
      static const std::set<std::string> kKnown = {"&amp;", "&lt;", "&gt;", "&quot;"};
      if (!kKnown.contains(entity)) return absl::StrCat("entity ", entity);
      continue;
    }
    if (xml[i] != '<') continue;
    std::size_t end = i + 1;
    bool quoted = false;
    for (; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
      if (xml[end] == '"') quoted = !quoted;
      if (xml[end] == '<') return absl::StrCat("< within a tag at ", i);
    }
    if (end == xml.size()) return "a tag does not end";
    std::string tag = xml.substr(i + 1, end - i - 1);
    const bool closes = tag[0] == '/', empty = tag.back() == '/';
    std::string name = closes ? tag.substr(1) : tag.substr(0, tag.find_first_of(" \n/"));
    if (closes) {
      if (open.empty() || open.back() != name) return absl::StrCat("</", name, ">");
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty() ? "" : absl::StrCat("<", open.back(), "> is open");
}

TEST(RenderSvg, IsWellFormedWithEveryBoxAndText) {
  LayerDrawing drawing = Draw(RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32", true));
  drawing.texts.push_back({.text = "a < b && \"c\" > d"});
  const std::string svg = RenderSvg(drawing);
  EXPECT_EQ(XmlProblem(svg), "");
  std::size_t rects = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos;
       at = svg.find("<rect", at + 1)) {
    ++rects;
  }
  EXPECT_GE(rects, 2 * drawing.boxes.size());
  EXPECT_TRUE(absl::StrContains(svg, "prefers-color-scheme: dark"));
  EXPECT_TRUE(absl::StrContains(svg, "a &lt; b &amp;&amp; &quot;c&quot; &gt; d"));
  EXPECT_NE(XmlProblem("<a><b></a></b>"), "");
  EXPECT_NE(XmlProblem("<a>&</a>"), "");
}

}  // namespace
}  // namespace headwise::typecheck
