// CutModel: a model of a few layers in which every kind of layer occurs, with the plan's entries for
// them: where a whole model has a mistake, it has the same, and is checked in a twentieth of the
// time.
//
//   const CutModel cut = Cut(request, layout.plan, 61);   // layer 61 among them
//   cut.layers;                                           // {0, 1, 2, 61}
#ifndef HEADWISE_TOOLS_TYPECHECK_CUT_MODEL_H_
#define HEADWISE_TOOLS_TYPECHECK_CUT_MODEL_H_

#include <cstdint>
#include <vector>

#include "core/parallel/layout_plan.h"
#include "core/proto/config.pb.h"

namespace headwise::typecheck {

struct CutModel {
  ModelConfig model;
  LayoutPlan plan;
  std::vector<std::int64_t> layers;  // layer i is layers[i] of the whole
};

// As many layers as the longer of the patterns of windows and of NoPE, a dense one and one with
// experts where there are any, and layer `wanted`, if it is one. Of those, dense layers come first
// as they do in the whole, so that a layer keeps its kind; entries of the plan for a layer by its
// number become those of its number here, or are dropped with it.
CutModel Cut(const ModelConfig& model, const LayoutPlan& plan, std::int64_t wanted);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_CUT_MODEL_H_
