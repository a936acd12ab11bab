// HeadwiseLayout: the head blocks of a checkpoint that Headwise wrote. Its model declares them; no
// rule is asked.
#ifndef HEADWISE_TOOLS_HEAD_BLOCKS_HEADWISE_CHECKPOINT_H_
#define HEADWISE_TOOLS_HEAD_BLOCKS_HEADWISE_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "optim/architectures/resolve.h"

namespace headwise {

// state_text is the checkpoint's state.textproto at `path`, weights the tensors of its
// model.safetensors. kDataLoss: a state that does not parse, a tensor that the model does not have
// or lacks, or one of another shape.
absl::StatusOr<CheckpointLayout> HeadwiseLayout(const std::string& path,
                                                const std::string& state_text,
                                                absl::Span<const WeightShape> weights);

}  // namespace headwise

#endif  // HEADWISE_TOOLS_HEAD_BLOCKS_HEADWISE_CHECKPOINT_H_
