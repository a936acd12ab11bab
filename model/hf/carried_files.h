// carried_files: what a native checkpoint keeps of the Hugging Face folder that it came from,
// besides the weights of the decoder. Internal to model/hf.
#ifndef HEADWISE_MODEL_HF_CARRIED_FILES_H_
#define HEADWISE_MODEL_HF_CARRIED_FILES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/io/atomic_directory.h"
#include "core/io/safetensors.h"
#include "model/hf/hf_folder.h"

namespace headwise {

inline constexpr char kCarriedDirectory[] = "hf";
inline constexpr char kUnusedTensors[] = "unused.safetensors";

// What was carried, found again.
struct CarriedFiles {
  std::string directory;                  // CHECKPOINT/hf
  std::string config_text;                // config.json
  std::map<std::string, DType> dtypes;    // of tensors; others are F32
  std::optional<SafetensorsFile> unused;  // tensors that are not run
  std::vector<std::string> others;        // names of the other files
};

// Writes hf/ and unused.safetensors into a checkpoint's directory, and returns the names of the
// files.
absl::StatusOr<std::vector<std::string>> WriteCarried(const HfFolder& folder,
                                                      const AtomicDirectory& directory);

// Of a checkpoint's directory; nullopt if it carries nothing.
absl::StatusOr<std::optional<CarriedFiles>> ReadCarried(const std::string& checkpoint);

// Copies `others` into a folder.
absl::Status CopyOthers(const CarriedFiles& carried, const AtomicDirectory& directory);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_CARRIED_FILES_H_
