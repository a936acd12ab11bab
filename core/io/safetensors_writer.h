// Writes safetensors files: whole or not at all (atomic_file.h), the same bytes for the same
// tensors.
//
//   HW_RETURN_IF_ERROR(WriteSafetensors(path, {{"wqkv", wqkv}, {"wo", wo}}));
//
// or, when the tensors do not fit in memory together, one after the other:
//
//   HW_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, entries));
//   for (const SafetensorsEntry& entry : writer->entries()) {
//     HW_RETURN_IF_ERROR(writer->Append(Produce(entry.name)));
//   }
//   HW_RETURN_IF_ERROR(writer->Commit());
//
// The header lists __metadata__ first (keys sorted), then the tensors in the order in which their
// data lie, without white space, padded with spaces so that the data begin at a multiple of 8
// bytes. Format: safetensors_header.h.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_WRITER_H_
#define HEADWISE_CORE_IO_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/io/atomic_file.h"
#include "core/tensor/tensor.h"

namespace headwise {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

enum class SafetensorsOrder { kAlphabetical, kAsGiven };

struct SafetensorsWriteOptions {
  std::map<std::string, std::string> metadata;
  SafetensorsOrder order = SafetensorsOrder::kAlphabetical;  // by the bytes of the names
  AtomicFileOptions file;                                    // expected_bytes is filled in
};

// The bytes before the data: size, JSON, padding. kInvalidArgument if a name occurs twice, is
// "__metadata__" or is not UTF-8, or if the header would exceed the format's bound.
absl::StatusOr<std::string> SafetensorsHeaderBytes(
    const std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata);

class SafetensorsWriter {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<SafetensorsEntry> entries,
      SafetensorsWriteOptions options = {});

  // In the order in which Append() wants them.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // The data of the next entry; a CPU tensor of its dtype and shape (checked).
  absl::Status Append(const Tensor& tensor);
  // After the last entry (checked). Until then the destination is untouched.
  absl::Status Commit();

 private:
  SafetensorsWriter(std::vector<SafetensorsEntry> entries, std::unique_ptr<AtomicFile> file);

  const std::vector<SafetensorsEntry> entries_;
  const std::unique_ptr<AtomicFile> file_;
  std::size_t next_ = 0;
};

// CPU tensors (checked), all at once.
absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, Tensor>>& tensors,
                              SafetensorsWriteOptions options = {});

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_SAFETENSORS_WRITER_H_
