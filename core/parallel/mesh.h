// Mesh: the ranks of a run as a grid with named axes, and a second grid of the same ranks for
// experts.
//
// Ranks are numbered in the order of the axes, the last axis fastest: with dp=2, tp=4 rank 5 is
// (dp 1, tp 1). The usual axes are dp (data), cp (context) and tp (tensor parallel), in this order.
// An axis of size 1 has a name and no other existence: it is in no list of axes, and what is said
// of it says nothing.
//
//   HW_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Parse("dp=2,tp=4,ep=4"));
//   mesh.size();                                    // 8
//   mesh.Axes(MeshView::kDense);                    // dp=2 tp=4
//   mesh.Axes(MeshView::kExpert);                   // edp=2 ep=4
//
// The expert view: edp * ep = size, and a group of ep consecutive ranks holds the experts between
// them. ep is not a further factor of the number of ranks.
//
// Sub-axes cut an axis in two where one part of a layout needs to tell them apart: kv replication
// cuts tp into (tp_kv, tp_rep). The name of the axis then stands for its sub-axes in order.
//
// A cheap immutable value: copies share the grid. Safe to share between threads.
#ifndef HEADWISE_CORE_PARALLEL_MESH_H_
#define HEADWISE_CORE_PARALLEL_MESH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace headwise {

enum class MeshView { kDense, kExpert };

// "dense", "expert".
const char* Name(MeshView view);

struct MeshAxis {
  std::string name;
  std::int64_t size = 0;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

class Mesh {
 public:
  // One rank, with the names dp, cp and tp.
  Mesh();
  // The axes, outermost first. kInvalidArgument: a name twice or empty, a size below 1, more than
  // 2^31 ranks, or more than kMaxAxes axes of size above 1.
  static absl::StatusOr<Mesh> Create(const std::vector<MeshAxis>& axes);
  // "dp=2,cp=1,tp=4,ep=4": dp, cp, tp in this order whatever theirs, each 1 where it is left out;
  // ep adds an expert view. kInvalidArgument names the part that does not read.
  static absl::StatusOr<Mesh> Parse(absl::string_view text);

  // The same ranks with an expert view. kInvalidArgument unless ep divides size().
  absl::StatusOr<Mesh> WithExperts(std::int64_t ep) const;
  // The same ranks with a dense axis cut into `parts`, outermost first. kInvalidArgument unless the
  // product of the parts is the axis' size. Of an axis of size 1 every part has size 1.
  absl::StatusOr<Mesh> WithSubAxes(absl::string_view axis,
                                   const std::vector<MeshAxis>& parts) const;

  static constexpr int kMaxAxes = 8;

  std::int64_t size() const;
  // Axes of size above 1, outermost first; an axis' number is its index here. An expert view that
  // was never asked for has edp = size and ep = 1.
  absl::Span<const MeshAxis> Axes(MeshView view) const;
  // The axes that a name stands for: one, none for an axis of size 1, several for an axis with
  // sub-axes. kNotFound for a name that the view does not have; the message lists the names it has.
  absl::StatusOr<std::vector<int>> Find(MeshView view, absl::string_view name) const;

  // Where a rank stands on an axis.
  std::int64_t Coordinate(MeshView view, int axis, std::int64_t rank) const;
  // The ranks that differ from `rank` only in their place on `axes`, in rank order of these axes.
  std::vector<std::int64_t> Group(MeshView view, absl::Span<const int> axes,
                                  std::int64_t rank) const;

  // "dp=2,tp=4,ep=4"; "1 rank" without axes.
  std::string ToString() const;

  // The same grid: same axes and sizes in both views.
  friend bool operator==(const Mesh& a, const Mesh& b);

 private:
  struct Grid;
  explicit Mesh(std::shared_ptr<const Grid> grid) : grid_(std::move(grid)) {}
  std::shared_ptr<const Grid> grid_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_MESH_H_
