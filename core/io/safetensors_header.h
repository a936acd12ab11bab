// The header of a safetensors file, parsed from untrusted bytes and proved consistent before
// anything uses it.
//
// Format (https://github.com/huggingface/safetensors): 8 bytes N, little-endian; N bytes of JSON,
//
//   {"__metadata__": {"key": "value", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// then the data, to the end of the file. Offsets count from the start of the data. The tensors tile
// the data: no hole, no overlap, nothing after the last. A tensor may be empty (a dimension of 0)
// or a scalar (no dimension).
//
// Rejected with kInvalidArgument, naming the tensor and the numbers: a size over 100 MB or beyond
// the file, text that is not JSON or not of this form, duplicate keys, unknown fields or dtypes,
// dimensions or offsets that are negative, fractional or overflow, offsets out of bounds, sizes
// that differ from shape x dtype, overlaps, holes, trailing bytes. Memory and time are linear in
// the header (n log n in the number of tensors); nesting does not recurse.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_HEADER_H_
#define HEADWISE_CORE_IO_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/dtype/dtype.h"
#include "core/tensor/tensor.h"

namespace headwise {

struct SafetensorsTensor {
  std::string name;
  // As the file has it: "BF16", "F8_E4M3", ... always a type of the format.
  std::string dtype_name;
  int bits_per_element = 0;
  // Absent if no Tensor can hold such elements (F8_E4M3, BOOL, ...): it can be listed, not read.
  std::optional<DType> dtype;
  Shape shape;
  std::int64_t file_offset = 0;  // bytes from the start of the file
  std::int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of the header
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // file offset of the data: 8 + N
};

inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// 8 + N from the first 8 bytes of a file of `file_bytes` bytes: how much of it
// ParseSafetensorsHeader() needs.
absl::StatusOr<std::int64_t> SafetensorsHeaderEnd(absl::string_view first_bytes,
                                                  std::int64_t file_bytes);

// `prefix` is the beginning of a file of `file_bytes` bytes, at least as far as
// SafetensorsHeaderEnd().
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view prefix,
                                                         std::int64_t file_bytes);

// A whole file in memory: the entry point for fuzzing. Same checks, and nothing but `file` is read.
absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::string_view file);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_SAFETENSORS_HEADER_H_
