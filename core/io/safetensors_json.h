// The JSON part of a safetensors header, read event by event: form and types are checked here,
// numbers are not. Internal to safetensors_header.cc.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_JSON_H_
#define HEADWISE_CORE_IO_SAFETENSORS_JSON_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace headwise::internal {

struct SafetensorsJson {
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> data_offsets;  // exactly two
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

absl::StatusOr<SafetensorsJson> ParseSafetensorsJson(absl::string_view text);

// A name from an untrusted file for an error message: quoted, escaped, cut to a readable length.
std::string QuoteName(absl::string_view name);

}  // namespace headwise::internal

#endif  // HEADWISE_CORE_IO_SAFETENSORS_JSON_H_
