#include "core/parallel/mesh.h"

#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

using Ranks = std::vector<std::int64_t>;

TEST(Mesh, RanksRunFastestAlongTheLastAxis) {
  const Mesh mesh = *Mesh::Create({{"dp", 2}, {"cp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.Coordinate(MeshView::kDense, 0, 17), 1);
  EXPECT_EQ(mesh.Coordinate(MeshView::kDense, 1, 17), 1);
  EXPECT_EQ(mesh.Coordinate(MeshView::kDense, 2, 17), 1);
  EXPECT_EQ(mesh.Group(MeshView::kDense, std::vector<int>{2}, 17), (Ranks{16, 17, 18, 19}));
  EXPECT_EQ(mesh.Group(MeshView::kDense, std::vector<int>{0}, 17), (Ranks{5, 17}));
  EXPECT_EQ(mesh.Group(MeshView::kDense, std::vector<int>{0, 1}, 17), (Ranks{1, 5, 9, 13, 17, 21}));
}

TEST(Mesh, AxesOfSizeOneHaveANameOnly) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  ASSERT_EQ(mesh.Axes(MeshView::kDense).size(), 1);
  EXPECT_EQ(mesh.Axes(MeshView::kDense)[0], (MeshAxis{"tp", 2}));
  EXPECT_TRUE(mesh.Find(MeshView::kDense, "dp")->empty());
  EXPECT_EQ(*mesh.Find(MeshView::kDense, "tp"), std::vector<int>{0});
  EXPECT_EQ(mesh.Find(MeshView::kDense, "pp").status().message(),
            "no axis 'pp' in the dense view of the mesh; it has cp, dp, tp");
  EXPECT_EQ(Mesh().size(), 1);
}

TEST(Mesh, ExpertsAreAnotherViewOfTheSameRanks) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4,ep=4");
  EXPECT_EQ(mesh.ToString(), "dp=2,tp=4,ep=4");
  EXPECT_EQ(mesh.size(), 8);
  const std::vector<int> ep = *mesh.Find(MeshView::kExpert, "ep");
  const std::vector<int> edp = *mesh.Find(MeshView::kExpert, "edp");
  EXPECT_EQ(mesh.Group(MeshView::kExpert, ep, 6), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(mesh.Group(MeshView::kExpert, edp, 6), (Ranks{2, 6}));
}

TEST(Mesh, SubAxesStandBehindTheAxisName) {
  const Mesh mesh = *(*Mesh::Parse("dp=2,tp=4")).WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 2}});
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(*mesh.Find(MeshView::kDense, "tp"), (std::vector<int>{1, 2}));
  EXPECT_EQ(*mesh.Find(MeshView::kDense, "tp_rep"), std::vector<int>{2});
  EXPECT_EQ(mesh.Group(MeshView::kDense, *mesh.Find(MeshView::kDense, "tp"), 6),
            (Ranks{4, 5, 6, 7}));
}

TEST(Mesh, RefusesWhatIsNotAGrid) {
  EXPECT_EQ(Mesh::Parse("tp=2,tp=4").status().message(), "mesh 'tp=2,tp=4': tp is given twice");
  EXPECT_EQ(Mesh::Parse("tp=0").status().message(),
            "mesh 'tp=0': 'tp=0' must be dp=N, cp=N, tp=N or ep=N with N at least 1, as in "
            "dp=2,tp=4");
  EXPECT_FALSE(Mesh::Parse("pp=2").ok());
  EXPECT_FALSE(Mesh::Create({{"a", 2}, {"a", 2}}).ok());
  EXPECT_FALSE(Mesh::Create({{"a", 0}}).ok());
  EXPECT_FALSE(Mesh::Create({{"a", std::int64_t{1} << 31}, {"b", 2}}).ok());
  EXPECT_EQ(Mesh::Parse("dp=2,tp=2,ep=3").status().message(),
            "mesh: ep=3 does not divide the 4 ranks of dp=2,tp=2; experts are spread over groups "
            "of ep consecutive ranks: choose a divisor of 4");
  EXPECT_EQ((*Mesh::Parse("tp=4")).WithSubAxes("tp", {{"a", 2}, {"b", 3}}).status().message(),
            "mesh: the sub-axes of tp must multiply to its size 4, found a=2 x b=3");
}

}  // namespace
}  // namespace headwise
