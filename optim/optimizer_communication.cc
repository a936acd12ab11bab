#include "optim/optimizer_communication.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/parallel/mesh.h"
#include "optim/cut_blocks.h"
#include "optim/groups.h"
#include "optim/parameter_share.h"
#include "optim/rank_plan.h"
#include "optim/settings.h"
#include "optim/shard_norm.h"

namespace headwise {
namespace {

constexpr std::int64_t kFloat = sizeof(float), kSum = sizeof(double);

// By parameter.
using Messages = std::vector<std::vector<OptimizerMessage>>;

// A member sends its pieces of others' blocks, and what has become of the others' pieces of its
// own.
void AddGathers(const OptimizerPlan& plan, const Mesh& mesh, Messages& messages) {
  for (const CutGroup& group : plan.cut.groups) {
    std::map<std::size_t, std::pair<std::int64_t, std::int64_t>> elements;  // sent, returned
    for (const CutBlock& block : group.blocks) {
      auto& [sent, returned] = elements[plan.muon[block.parameter]];
      const std::int64_t mine = block.ElementsOf(group.self);
      if (block.owner == group.self) {
        returned += block.rows * block.columns - mine;
      } else {
        sent += mine;
      }
    }
    const std::string axes = AxisNames(mesh, group.view, group.axes);
    for (const auto& [parameter, count] : elements) {
      messages[parameter].push_back(
          {.what = "gather for Newton-Schulz", .axis = axes, .bytes_sent = kFloat * count.first});
      messages[parameter].push_back(
          {.what = "return the update", .axis = axes, .bytes_sent = kFloat * count.second});
    }
  }
}

void AddNorm(const OptimizerPlan& plan, const Mesh& mesh, std::int64_t rank, Messages& messages) {
  std::vector<const ParameterShare*> shares;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < plan.shares.size(); ++i) {
    if (plan.grouped[i].assignment.group == OptimizerGroup::kBalancing) continue;
    shares.push_back(&plan.shares[i]);
    which.push_back(i);
  }
  const NormPlan norm = PlanNorm(shares, rank);
  const auto add = [&](std::size_t parameter, MeshView view, const std::vector<int>& axes,
                       std::int64_t sums) {
    // Sums are passed on and gathered over the same axes, in most cases: one message.
    std::vector<OptimizerMessage>& of_parameter = messages[which[parameter]];
    OptimizerMessage message = {
        .what = "gradient norm", .axis = AxisNames(mesh, view, axes), .bytes_sent = kSum * sums};
    for (OptimizerMessage& other : of_parameter) {
      if (other.what != message.what || other.axis != message.axis) continue;
      other.bytes_sent += message.bytes_sent;
      return;
    }
    of_parameter.push_back(std::move(message));
  };
  for (const NormChain& chain : norm.chains) {
    const bool last = chain.place + 1 == chain.members.size();
    for (const std::size_t p : chain.parameters) {
      add(p, chain.view, chain.axes, last ? 0 : RowsHere(*shares[p], rank));
    }
  }
  for (const NormGather& gather : norm.gathers) {
    const auto others = static_cast<std::int64_t>(gather.members.size()) - 1;
    for (const std::size_t p : gather.parameters) {
      add(p, gather.view, gather.axes, others * RowsGiven(*shares[p], rank));
    }
  }
}

std::int64_t StateBytes(const OptimizerPlan& plan, absl::Span<const Parameter* const> parameters) {
  std::int64_t bytes = sizeof(std::int64_t);  // AdamW's counter
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    switch (plan.grouped[i].assignment.group) {
      case OptimizerGroup::kMuonPerHead:
      case OptimizerGroup::kMuon:
        bytes += kFloat * parameters[i]->value.size();
        break;
      case OptimizerGroup::kAdamW:
        bytes += 2 * kFloat * parameters[i]->value.size();
        break;
      case OptimizerGroup::kBalancing:
        break;
    }
  }
  return bytes;
}

}  // namespace

std::int64_t OptimizerAccount::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const OptimizerMessage& message : messages) bytes += message.bytes_sent;
  return bytes;
}

std::string OptimizerAccount::ToString() const {
  std::string text;
  for (const OptimizerMessage& m : messages) {
    absl::StrAppend(&text, m.parameter.empty() ? "all parameters" : m.parameter, "  ", m.what, "  ",
                    m.axis, "  ", m.bytes_sent, "\n");
  }
  absl::StrAppend(&text, "sent by this rank in a step: ", bytes_sent(),
                  " bytes; optimizer state: ", state_bytes, " bytes\n");
  return text;
}

absl::StatusOr<OptimizerAccount> AccountOptimizer(const OptimizerConfig& config,
                                                  absl::Span<const Parameter* const> parameters,
                                                  std::int64_t rank) {
  HW_ASSIGN_OR_RETURN(const OptimizerSettings settings, ResolveSettings(config));
  HW_ASSIGN_OR_RETURN(const OptimizerPlan plan, PlanOptimizer(parameters, settings.granularity,
                                                              settings.head_group_size, rank));
  OptimizerAccount account;
  account.state_bytes = StateBytes(plan, parameters);
  if (!plan.mesh.has_value()) return account;
  Messages messages(parameters.size());
  AddGathers(plan, *plan.mesh, messages);
  AddNorm(plan, *plan.mesh, rank, messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    for (OptimizerMessage& message : messages[i]) {
      message.parameter = parameters[i]->name;
      account.messages.push_back(std::move(message));
    }
  }
  if (plan.mesh->size() > 1) {  // norm and guard are compared
    account.messages.push_back({.what = "gradient norm",
                                .axis = "all ranks",
                                .bytes_sent = 2 * kSum * (plan.mesh->size() - 1)});
  }
  return account;
}

}  // namespace headwise
