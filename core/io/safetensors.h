// SafetensorsFile: reads tensors from a safetensors file.
//
//   HW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   for (const SafetensorsTensor& tensor : file.tensors()) Print(tensor.name, tensor.shape);
//   HW_ASSIGN_OR_RETURN(const Tensor wqkv, file.Read("layers.0.wqkv"));
//
// Open() reads the header and nothing else, so listing is instant at any file size. Read() reads
// one tensor's bytes with pread: nothing is mapped, and a file that shrinks meanwhile is an error,
// not a signal. Errors name the path, and what is wrong in it (safetensors_header.h lists what is
// rejected). Copies share the open file. Thread-safe.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_H_
#define HEADWISE_CORE_IO_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/safetensors_header.h"
#include "core/tensor/tensor.h"

namespace headwise {

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // In the order of the header.
  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  std::vector<std::string> Names() const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Null if there is none. Lives as long as this object.
  const SafetensorsTensor* Find(const std::string& name) const;

  // A new CPU tensor of the file's dtype and shape. kNotFound, with the nearest name, if there is
  // none; kUnimplemented if no Tensor can hold the dtype.
  absl::StatusOr<Tensor> Read(const std::string& name) const;
  // Into an existing CPU tensor, whose dtype and shape must be those of the file; kInvalidArgument
  // otherwise.
  absl::Status ReadInto(const std::string& name, const Tensor& destination) const;

 private:
  class Descriptor;  // an open file, closed by its destructor

  SafetensorsFile(std::string path, std::shared_ptr<const Descriptor> file,
                  SafetensorsHeader header);

  absl::StatusOr<const SafetensorsTensor*> FindReadable(const std::string& name) const;
  absl::Status ReadBytes(const SafetensorsTensor& tensor, void* destination) const;

  std::string path_;
  std::shared_ptr<const Descriptor> file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> position in header_.tensors
};

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_SAFETENSORS_H_
