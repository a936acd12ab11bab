// The index of a checkpoint that is split into several safetensors files, parsed from untrusted
// text.
//
//   {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}}
//
// Only weight_map counts. Rejected with kInvalidArgument: text that is not JSON or not of this form,
// a tensor that is listed twice, and a shard that is not a plain file name, so that no index can
// point outside of its own directory.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_INDEX_H_
#define HEADWISE_CORE_IO_SAFETENSORS_INDEX_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace headwise {

struct SafetensorsIndex {
  std::map<std::string, std::string> shard_of;  // tensor name -> file name
  std::vector<std::string> shards;              // sorted, each once
};

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view text);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_SAFETENSORS_INDEX_H_
