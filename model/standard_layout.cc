#include "model/standard_layout.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "model/config.h"

namespace headwise {
namespace {

std::int64_t AxisSize(const Mesh& mesh, MeshView view, absl::string_view name) {
  std::int64_t size = 1;
  const auto axes = mesh.Find(view, name);
  if (!axes.ok()) return 1;
  for (const int axis : *axes) size *= mesh.Axes(view)[static_cast<std::size_t>(axis)].size;
  return size;
}

class Planner {
 public:
  Planner(const ModelConfig& config, const Mesh& mesh, const LayoutOptions& options)
      : config_(config),
        mesh_(mesh),
        tp_(AxisSize(mesh, MeshView::kDense, "tp")),
        sequence_parallel_(options.sequence_parallel && tp_ > 1),
        expert_parallel_(AxisSize(mesh, MeshView::kExpert, "ep") > 1) {}

  absl::StatusOr<ShardedLayout> Plan() {
    HW_RETURN_IF_ERROR(ReplicateGroups());
    Ends();
    Attention();
    Feedforward();
    return ShardedLayout{mesh_, std::move(plan_)};
  }

 private:
  using Names = std::initializer_list<const char*>;

  void Leaves(const std::string& module, Names names, absl::string_view spec) {
    for (const char* name : names) plan_.SetLeaf(absl::StrCat(module, name), spec);
  }
  void Forward(const std::string& boundary, const std::vector<absl::string_view>& steps) {
    plan_.SetForward(boundary, steps);
  }

  // Into a product that tp shares out, and out of one that leaves each rank a term of the sum.
  void In(const std::string& boundary) {
    Forward(boundary, {sequence_parallel_ ? "all_gather(F32)@tp -> R" : "convert(F32)@tp -> R"});
  }
  void Out(const std::string& boundary) {
    Forward(boundary,
            {sequence_parallel_ ? "reduce_scatter(F32)@tp -> S(0)" : "all_reduce(F32)@tp -> I"});
  }
  // Parameters that work on the residual stream: as it is on tp, so is their use.
  void OnStream(const std::string& module, Names names) {
    Leaves(module, names, sequence_parallel_ ? "" : "I@tp");
  }

  // tp as (tp_kv, tp_rep) where there are more ranks than kv groups.
  absl::Status ReplicateGroups() {
    const std::int64_t groups = config_.attention().num_kv_heads();
    const std::int64_t queries = config_.attention().num_query_heads() / groups;
    if (groups % tp_ == 0) return absl::OkStatus();
    if (tp_ % groups != 0 || queries % (tp_ / groups) != 0) {
      std::vector<std::int64_t> possible;
      for (std::int64_t tp = 1; tp <= groups * queries; ++tp) {
        if (groups % tp == 0 || (tp % groups == 0 && queries % (tp / groups) == 0)) {
          possible.push_back(tp);
        }
      }
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: tp=", tp_, " shares out neither the ", groups, " kv groups of ",
                       config_.name(), " nor, replicating them, the ", queries,
                       " query heads of each; expected one of ", absl::StrJoin(possible, ", ")));
    }
    replicated_ = true;
    HW_ASSIGN_OR_RETURN(mesh_,
                        mesh_.WithSubAxes("tp", {{"tp_kv", groups}, {"tp_rep", tp_ / groups}}));
    return absl::OkStatus();
  }

  // What passes are fed with, embedding, head.
  void Ends() {
    Leaves("", {"tokens", "positions"}, "S(0)@dp, S(0)@cp");
    Leaves("", {"targets"}, "S(0)@dp, S(0)@cp, I@tp");
    Leaves("", {"loss_scale"}, "I@tp");
    Leaves("", {"embedding.weight", "head.weight"}, "S(0)@tp");
    OnStream("", {"embedding_norm.weight", "final_norm.weight"});
    Out("embedding.out");
    In("head.in");
  }

  void Attention() {
    const std::string layers = "layers.*.";
    OnStream(layers, {"attention_norm.weight", "post_attention_norm.weight", "ffn_norm.weight",
                      "post_ffn_norm.weight", "attention_residual_gate", "ffn_residual_gate"});
    const std::string attention = layers + "attention.";
    Leaves(attention, {"wqkv", "wqkv_bias"}, replicated_ ? "S(0)@tp_kv" : "S(0)@tp");
    Leaves(attention, {"gate", "sinks"}, "S(0)@tp");
    Leaves(attention, {"wo"}, "S(1)@tp");
    OnStream(attention, {"wo_bias"});
    In(attention + "in");
    if (replicated_) Forward(attention + "q", {"convert(F32)@tp_rep -> S(1)"});
    Forward(attention + "k", {"all_gather(F32)@cp -> R"});
    Forward(attention + "v", {"all_gather(F32)@cp -> R"});
    Out(attention + "out");
  }

  void Feedforward() {
    // What most layers are goes by `*`; entries set later hold.
    std::vector<std::string> dense, experts;
    for (std::int64_t l = 0; l < config_.num_layers(); ++l) {
      (LayerHasExperts(config_, l) ? experts : dense)
          .push_back(absl::StrCat("layers.", l, ".ffn."));
    }
    const bool mostly_experts = experts.size() > dense.size();
    std::vector<std::string>& most = mostly_experts ? experts : dense;
    if (!most.empty()) most = {"layers.*.ffn."};
    for (const bool rare : {false, true}) {
      const bool with_experts = rare != mostly_experts;
      for (const std::string& module : with_experts ? experts : dense) {
        with_experts ? Experts(module) : Dense(module, true);
      }
    }
  }

  void Dense(const std::string& module, bool own_boundaries) {
    Leaves(module, {"w1", "w3", "w1_bias", "w3_bias"}, "S(0)@tp");
    Leaves(module, {"w2"}, "S(1)@tp");
    if (!own_boundaries) return;
    OnStream(module, {"w2_bias"});
    In(module + "in");
    Out(module + "out");
  }

  void Experts(const std::string& module) {
    if (expert_parallel_) {
      ExpertsOnEp(module);
    } else {
      ExpertsOnTp(module);
    }
  }

  // Experts are shared out; every rank's tokens are its own.
  void ExpertsOnEp(const std::string& module) {
    Leaves(module, {"w1", "w3", "w2", "w1_bias", "w3_bias", "w2_bias"}, "expert: S(0)@ep");
    Leaves(module, {"post_expert_norm.weight"}, "expert:");
    Forward(module + "in", {});
    Forward(module + "out", {});
    if (!sequence_parallel_) {
      Forward(module + "in", {"convert(F32)@tp -> S(0)"});
      Forward(module + "out", {"all_gather(F32)@tp -> I"});
    }
    Forward(module + "dispatch", {"reinterpret_mesh -> expert", "all_to_all@ep -> S(0)"});
    Forward(module + "combine", {"all_to_all@ep -> S(1)", "reinterpret_mesh -> dense"});
    Forward(module + "loads", {"all_reduce@dp -> R", "all_reduce@cp -> R", "all_reduce@tp -> R"});
    const std::string shared = module + "shared.";
    Dense(shared, false);
    Forward(shared + "in", {"all_gather(F32)@tp -> R"});
    Forward(shared + "out", {"reduce_scatter(F32)@tp -> S(0)"});
  }

  // Every rank has a part of every expert.
  void ExpertsOnTp(const std::string& module) {
    const MoeConfig& moe = config_.ffn().moe();
    const bool narrow = moe.expert_width() != 0;
    const bool normed = moe.post_expert_norm().style() != NORM_ABSENT;
    Leaves(module, {"w1", "w3", "w1_bias", "w3_bias"}, "S(1)@tp");
    Leaves(module, {"w2"}, "S(2)@tp");
    Leaves(module, {"w2_bias"}, "");
    Forward(module + "w2_bias", {"convert@tp -> P"});
    In(module + "in");
    Out(module + "out");
    Forward(module + "loads", {"all_reduce@dp -> R", "all_reduce@cp -> R"});
    Forward(module + "balancing", {"convert@tp -> P"});
    const std::string shared = module + "shared.";
    Dense(shared, false);
    Forward(shared + "w2_bias", {"convert@tp -> P"});
    if (narrow) {
      Leaves(module, {"pre_expert_proj"}, "S(0)@tp");
      Leaves(module, {"post_expert_proj"}, "S(1)@tp");
      Forward(module + "narrow", {"all_gather(F32)@tp -> R"});
      Forward(module + "wide", {"convert(F32)@tp -> S(1)"});
    }
    if (!narrow && !normed) return;
    // A norm needs an expert's whole output.
    Forward(module + "experts_out", {"all_reduce(F32)@tp -> R"});
    if (narrow) return;
    Forward(shared + "out", {"all_reduce(F32)@tp -> R"});
    if (sequence_parallel_) {
      Forward(module + "out", {"convert(F32)@tp -> S(0)"});
    } else {
      Forward(module + "out", {"convert(F32)@tp -> P", "all_reduce(F32)@tp -> I"});
    }
  }

  const ModelConfig& config_;
  Mesh mesh_;
  std::int64_t tp_;
  bool sequence_parallel_, expert_parallel_;
  bool replicated_ = false;
  LayoutPlan plan_;
};

}  // namespace

absl::StatusOr<ShardedLayout> StandardLayout(const ModelConfig& config, const Mesh& mesh,
                                             const LayoutOptions& options) {
  HW_RETURN_IF_ERROR(ValidateModelConfig(config));
  return Planner(config, mesh, options).Plan();
}

}  // namespace headwise
