// shard_plan: which tensors go into which file of weights, and what the files are called.
//
//   model.safetensors                             if one file holds all
//   model-00001-of-00003.safetensors, ...         and model.safetensors.index.json otherwise
#ifndef HEADWISE_MODEL_HF_SHARD_PLAN_H_
#define HEADWISE_MODEL_HF_SHARD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/safetensors_writer.h"

namespace headwise {

struct Shard {
  std::string file;
  std::vector<SafetensorsEntry> entries;
};

// In order, each file as full as max_bytes > 0 (of data) lets it; a larger tensor is alone in its
// file.
std::vector<Shard> PlanShards(const std::vector<SafetensorsEntry>& entries, std::int64_t max_bytes);

// The text of model.safetensors.index.json.
std::string ShardIndex(const std::vector<Shard>& shards);

// "5GB", "500MB", "2GiB", "1048576": kInvalidArgument if it is none of these, or nothing.
absl::StatusOr<std::int64_t> ParseShardSize(const std::string& text);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_SHARD_PLAN_H_
