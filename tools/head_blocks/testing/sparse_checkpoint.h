// Checkpoints of any size as sparse files: headers as published, no data.
#ifndef HEADWISE_TOOLS_HEAD_BLOCKS_TESTING_SPARSE_CHECKPOINT_H_
#define HEADWISE_TOOLS_HEAD_BLOCKS_TESTING_SPARSE_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "optim/architectures/resolve.h"

namespace headwise {

// One .safetensors file of BF16 tensors.
absl::Status WriteSparseSafetensors(const std::string& path,
                                    const std::vector<WeightShape>& weights);

// `shards` files and model.safetensors.index.json in an existing directory.
absl::Status WriteSparseShards(const std::string& directory,
                               const std::vector<WeightShape>& weights, int shards);

// Llama 3.1 405B: 126 layers, 1,138 tensors, 405,853,388,800 parameters.
std::string Llama405BConfig();
std::vector<WeightShape> Llama405BWeights();

}  // namespace headwise

#endif  // HEADWISE_TOOLS_HEAD_BLOCKS_TESTING_SPARSE_CHECKPOINT_H_
