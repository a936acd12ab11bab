// ResolveHeadBlocks: the head blocks of an outside checkpoint's weights, from its config.json and
// the names and shapes of its tensors. No data is read.
//
// One explicit rule per model_type (docs/head_blocks.md lists them) derives a projection's layout
// from the fields that the architecture's own attention module reads, and confirms it against the
// tensor's exact shape, both dimensions. What does not confirm is declined with a reason and stays
// one whole matrix. A sub-model (text decoder, vision tower) uses its own section of the
// configuration, never its parent's. All projections of one attention module are accepted, or none
// is: a module with one projection of another width is not the module that the rule describes.
//
//   absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(
//       *ReadWholeFile("config.json"), {{"model.layers.0.self_attn.q_proj.weight", {4096, 4096}}, ...});
//   for (const WeightLayout& weight : layout->weights) {
//     if (weight.blocks.has_value()) {
//       ... weight.blocks->Coarsen(Granularity::kKvGroup) ...
//     } else {
//       ... Name(*weight.declined), weight.explanation ...
//     }
//   }
//   HW_RETURN_IF_ERROR(RequireHeadBlocks(*layout, Granularity::kHead));
//
// Headwise's own models need none of this: they declare the blocks of each Parameter.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_H_
#define HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/tensor.h"
#include "optim/architectures/decline_reason.h"
#include "optim/architectures/resolve_options.h"
#include "optim/parameter.h"

namespace headwise {

struct WeightShape {
  std::string name;  // as the checkpoint has it: "model.layers.0.self_attn.q_proj.weight"
  Shape shape;       // as stored
};

// One weight: blocks, or the reason why it has none.
struct WeightLayout {
  std::string name;
  Shape shape;
  std::optional<HeadBlocks> blocks;       // per head; of the rows, or of the columns
  std::optional<DeclineReason> declined;  // present exactly where blocks are absent
  std::string layout;                     // "interleaved", ...; empty where declined
  // One line: the pattern and the fields it comes from, or what is missing or different.
  std::string explanation;
  // What the weight is in its model; absent if no rule knows its name.
  std::optional<ParameterRole> role;
  // Stored [in_features, out_features]; see MuonParameter::transposed_storage.
  bool transposed_storage = false;
};

struct CheckpointLayout {
  std::string model_type;             // of the configuration itself; empty if it names none
  std::vector<WeightLayout> weights;  // in the order given
};

// kInvalidArgument: config_json is not a JSON object (of at most 64 MiB), a weight without a name or
// with a negative extent or more elements than 64 bits can count, or two of one name. Everything
// else that may be wrong with a weight is a reason in its layout.
absl::StatusOr<CheckpointLayout> ResolveHeadBlocks(absl::string_view config_json,
                                                   absl::Span<const WeightShape> weights,
                                                   const ResolveOptions& options = {});

struct LayoutSummary {
  std::int64_t weights = 0;
  std::int64_t blocked = 0;  // weights with head blocks
  std::int64_t blocks = 0;   // of those, per head
  std::map<DeclineReason, std::int64_t> declined;
};

LayoutSummary Summarize(const CheckpointLayout& layout);

// kFailedPrecondition, with the reasons counted, if `granularity` needs head blocks and no weight
// has any.
absl::Status RequireHeadBlocks(const CheckpointLayout& layout, Granularity granularity);

// The model_types that have a rule, sorted.
std::vector<std::string> KnownArchitectures();

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_RESOLVE_H_
