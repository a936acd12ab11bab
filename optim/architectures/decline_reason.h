// DeclineReason: why a weight of a checkpoint is orthogonalised whole.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_DECLINE_REASON_H_
#define HEADWISE_OPTIM_ARCHITECTURES_DECLINE_REASON_H_

namespace headwise {

enum class DeclineReason {
  kNotAttention,       // no projection onto attention heads: embeddings, experts, outputs, indexers
  kNotTwoDimensional,  // no matrix: norms, biases, convolutions, stacked experts
  kTransposedStorage,  // the layout's shape, but [in, out] where the architecture stores [out, in]
  kWidthMismatch,      // the configuration's geometry needs another shape: padding, a shard
  kNoGeometry,         // the configuration lacks the numbers, or they are impossible
  kAmbiguous,          // fields of the configuration contradict each other or the module
  kUnknownArchitecture,   // no rule for this model_type
  kOwnerGeometryUnknown,  // a projection of a module that the architecture's rule does not describe
  kLowRankDown,           // the down-projection of a low-rank pair: no heads on its rows
};

// "not_attention", "not_two_dimensional", ..., "low_rank_down".
const char* Name(DeclineReason reason);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_DECLINE_REASON_H_
