// HfFolder: a Hugging Face folder (config.json and safetensors, one file or an index of shards)
// whose configuration and tensor headers were read and agree, and its weights as our parameters.
//
//   HW_ASSIGN_OR_RETURN(const HfFolder folder, HfFolder::Open("llama"));
//   HW_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(folder.model(), {}));
//   HW_RETURN_IF_ERROR(folder.LoadWeights(folder.model(), decoder->parameters()));
//
// Open() reads no weights: milliseconds at any size. It wants every tensor that the configuration
// asks for, in its shape, as F32, BF16 or F16, and no other, but those that the family is known to
// have for parts that are not run (not_run()). Errors are kDataLoss or kNotFound, one line, and
// name file and tensor. Copies share the open files. Thread-safe.
#ifndef HEADWISE_MODEL_HF_HF_FOLDER_H_
#define HEADWISE_MODEL_HF_HF_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/safetensors_set.h"
#include "model/hf/hf_config.h"
#include "model/hf/tensor_map.h"
#include "optim/parameter.h"

namespace headwise {

class HfFolder {
 public:
  // A directory with a config.json, and no checkpoint of ours.
  static bool Is(const std::string& directory);
  static absl::StatusOr<HfFolder> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const HfFamily& family() const { return *hf_.family; }
  const ModelConfig& model() const { return hf_.model; }
  // config.json as it is.
  const std::string& config_text() const { return config_text_; }
  const SafetensorsSet& tensors() const { return tensors_; }
  // Which tensors make up the parameters of model().
  const TensorMap& map() const { return map_; }
  // Tensors of parts that are not run: a vision tower, constants. Sorted.
  const std::vector<std::string>& not_run() const { return not_run_; }

  // Reads one parameter of map() into *value, fp32 of its shape, tensor by tensor: memory of the
  // largest one. kDataLoss names an element that is not finite.
  absl::Status Read(const ParameterMap& parameter, const Tensor& value) const;
  // A tied head's folder may hold the head too: kDataLoss unless it is the embedding, bit by bit.
  absl::Status CheckTiedHead() const;

  // Fills the parameters (fp32) of a decoder of this `model`, which may pack its rows otherwise.
  // kDataLoss names the first tensor in which the folder's own model is another.
  absl::Status LoadWeights(const ModelConfig& model,
                           const std::vector<Parameter*>& parameters) const;

 private:
  HfFolder(std::string directory, std::string config_text, HfModel hf, SafetensorsSet tensors);
  absl::Status CheckTensors();

  std::string directory_;
  std::string config_text_;
  HfModel hf_;
  SafetensorsSet tensors_;
  TensorMap map_;
  std::vector<std::string> not_run_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_HF_FOLDER_H_
