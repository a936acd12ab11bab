// SafetensorsSet: the tensors of a checkpoint that lies in one safetensors file or, with an index,
// in several.
//
//   HW_ASSIGN_OR_RETURN(const std::string path, SafetensorsSet::FindIn("llama"));
//   HW_ASSIGN_OR_RETURN(const SafetensorsSet set, SafetensorsSet::Open(path));
//   for (const SafetensorsTensor* tensor : set.tensors()) Print(tensor->name, tensor->shape);
//   HW_ASSIGN_OR_RETURN(const Tensor norm, set.Read("model.norm.weight"));
//
// Open() reads headers only: a checkpoint of any size in milliseconds. Whatever is wrong with a
// file is kDataLoss (kNotFound if it is not there) and names it. Copies share the open files.
// Thread-safe.
#ifndef HEADWISE_CORE_IO_SAFETENSORS_SET_H_
#define HEADWISE_CORE_IO_SAFETENSORS_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/safetensors.h"
#include "core/tensor/tensor.h"

namespace headwise {

// What is wrong with a file is not what is wrong with a flag: kInvalidArgument becomes kDataLoss,
// and the message names the path.
absl::Status FileIsBad(const std::string& path, const absl::Status& status);

class SafetensorsSet {
 public:
  // The index of a directory (model.safetensors.index.json) or, without one, its
  // model.safetensors; kNotFound if it has neither, kDataLoss if it has both.
  static absl::StatusOr<std::string> FindIn(const std::string& directory);

  // `path`: a .safetensors file, or an index (any name that ends in .json). kDataLoss also if a
  // shard is not there, or lacks a tensor that the index promises, or if two shards have a tensor of
  // one name. Tensors of a shard that the index leaves out belong to the set.
  static absl::StatusOr<SafetensorsSet> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t num_files() const { return static_cast<std::int64_t>(files_.size()); }
  // Sorted by name. Live as long as this object or a copy.
  const std::vector<const SafetensorsTensor*>& tensors() const { return tensors_; }
  std::vector<std::string> Names() const;
  // Null if there is none.
  const SafetensorsTensor* Find(const std::string& name) const;
  // The path of the file that holds a tensor of the set (checked).
  const std::string& FileOf(const std::string& name) const;
  // A new CPU tensor, of a tensor of the set (checked).
  absl::StatusOr<Tensor> Read(const std::string& name) const;

 private:
  explicit SafetensorsSet(std::string path) : path_(std::move(path)) {}
  void Add(const SafetensorsFile& file, const SafetensorsTensor* tensor);

  std::string path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<const SafetensorsTensor*> tensors_;
  std::map<std::string, const SafetensorsFile*> file_of_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_SAFETENSORS_SET_H_
