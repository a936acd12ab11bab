// CheckpointSource: where a checkpoint's configuration and tensor headers are, and reading them.
// Headers only: a checkpoint of any size is read in milliseconds.
#ifndef HEADWISE_TOOLS_HEAD_BLOCKS_CHECKPOINT_SOURCE_H_
#define HEADWISE_TOOLS_HEAD_BLOCKS_CHECKPOINT_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/architectures/resolve.h"

namespace headwise {

struct CheckpointSource {
  std::string config_path;   // config.json, or state.textproto of a Headwise checkpoint
  std::string weights_path;  // the .safetensors file or the index
  bool headwise = false;     // a checkpoint that Headwise wrote
};

// `weights` is a .safetensors file, an index (model.safetensors.index.json), a directory that holds
// one of them, or a Headwise checkpoint or run (of which the newest step counts). `config` may be
// empty: then config.json beside the weights. kNotFound says what was looked for.
absl::StatusOr<CheckpointSource> FindCheckpointSource(const std::string& config,
                                                      const std::string& weights);

struct TensorHeaders {
  std::vector<WeightShape> weights;  // sorted: layer 2 before layer 10
  std::int64_t files = 0;
};

// Names and shapes of all tensors. Errors name the file: kDataLoss if it is no such file, or if a
// shard lacks a tensor that the index promises.
absl::StatusOr<TensorHeaders> ReadTensorHeaders(const std::string& weights_path);

// What the configuration says about the weights, by the rules of optim/architectures or, for a
// Headwise checkpoint, as its model declares them.
absl::StatusOr<CheckpointLayout> ResolveCheckpoint(const CheckpointSource& source,
                                                   const TensorHeaders& headers,
                                                   const ResolveOptions& options);

}  // namespace headwise

#endif  // HEADWISE_TOOLS_HEAD_BLOCKS_CHECKPOINT_SOURCE_H_
