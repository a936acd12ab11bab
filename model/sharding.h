// Sharding: what a decoder carries along when its tensors are cut over the ranks of a mesh.
//
//   LayoutChecker checker(mesh, plan);
//   Sharding sharding(checker);                  // on types alone, as rank 0
//   sharding.SetTokens(8, 4096);                 // 8 groups of 4096 tokens, over all ranks
//   auto decoder = *Decoder::Create(config, {.device = Device::kMeta, .sharding = &sharding});
//   decoder->ForwardBackward(batch, scale, pool);  // computes nothing (model/type_pass.h)
//   checker.status();                              // the pass was its own check
//
// The decoder's text is that of one rank. Its parameters are this rank's shares, as the plan says;
// every operation derives the layout of its result from those of its operands, by its rule; and
// where two parts meet, Cross() takes the plan's steps. On types alone (Device::kMeta) steps change
// layouts and shapes; with MeshRanks they also move data.
//
// A mistake is noted in the checker, once: what depends on it is an *unknown* tensor, without
// layout and elements, and operations hand that through. So is an error of communication
// (status()): everything after it is unknown.
//
// Not thread-safe: one rank.
#ifndef HEADWISE_MODEL_SHARDING_H_
#define HEADWISE_MODEL_SHARDING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_type.h"
#include "core/tensor/tensor.h"

namespace headwise {

class Sharding {
 public:
  // On types alone, as rank `rank` of the checker's mesh; or of a mesh of one rank, on any device.
  // The checker is not owned.
  explicit Sharding(LayoutChecker& checker, std::int64_t rank = 0)
      : checker_(&checker), rank_(rank) {}
  // On this rank of real ones, of the checker's mesh. Neither is owned.
  Sharding(LayoutChecker& checker, const MeshRanks& ranks)
      : checker_(&checker), ranks_(&ranks), rank_(ranks.rank()) {}
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

  LayoutChecker& checker() const { return *checker_; }
  const MeshRanks* ranks() const { return ranks_; }  // null: types alone
  std::int64_t rank() const { return rank_; }

  // The first error of communication.
  const absl::Status& status() const { return status_; }
  void Fail(const absl::Status& status);

  // --- what a pass is fed with ---

  // Of all ranks together: a pass is over `groups` of `length` tokens each, T = [B groups, L], and no
  // document lies in two groups: usually one group per data-parallel rank. Leaves "tokens",
  // "positions", "targets" [T] and "loss_scale", a scalar. Positions and targets must be sharded as
  // the tokens are.
  void SetTokens(std::int64_t groups, std::int64_t length);
  struct Inputs {
    LayoutType tokens, positions, targets, loss_scale;  // undefined where the plan is wrong
  };
  const Inputs& inputs() const { return inputs_; }
  std::int64_t group_tokens() const { return length_; }
  // Tokens of this rank; 0 where the plan is wrong.
  std::int64_t local_tokens() const;

  // --- boundaries ---

  // x after the steps of a boundary, and a gradient before them.
  Tensor Cross(absl::string_view boundary, const Tensor& x);
  Tensor CrossBackward(absl::string_view boundary, const Tensor& gradient);
  // Whether the boundary takes a step, forward, on an axis that has ranks.
  bool Communicates(absl::string_view boundary) const;

  // The same for rows of experts [E R, N], which the plan's steps see as [E, R, N]. `exchange`
  // moves the rows on real ranks, where the plan has an all_to_all.
  using Exchange = std::function<absl::StatusOr<Tensor>(const Step& step, const Tensor& rows)>;
  Tensor CrossRows(absl::string_view boundary, const Tensor& rows, const Exchange& exchange);
  Tensor CrossRowsBackward(absl::string_view boundary, const Tensor& gradient,
                           const Exchange& exchange);

 private:
  // Notes an input that is sharded otherwise than the tokens, and makes it unknown.
  void CheckSharedAsTokens(absl::string_view name, LayoutType& type);
  Tensor Take(const std::vector<LayoutChecker::Taken>& steps, const LayoutType& result,
              const Tensor& x, const Exchange* exchange);

  LayoutChecker* checker_;
  const MeshRanks* ranks_ = nullptr;
  std::int64_t rank_ = 0;
  Inputs inputs_;
  std::int64_t groups_ = 0, length_ = 0;
  absl::Status status_;
};

// The code in scope belongs to a module: the names of boundaries and the paths of mistakes say so.
// Nothing without sharding.
class ModuleScope {
 public:
  ModuleScope(Sharding* sharding, absl::string_view name) {
    if (sharding != nullptr) module_.emplace(sharding->checker(), name);
  }

 private:
  std::optional<LayoutChecker::Module> module_;
};

// A tensor that nothing is known of; what operations make of a mistake.
Tensor UnknownTensor(Device device);

}  // namespace headwise

#endif  // HEADWISE_MODEL_SHARDING_H_
