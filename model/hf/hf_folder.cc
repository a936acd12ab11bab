#include "model/hf/hf_folder.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"
#include "model/hf/tensor_copy.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxConfigBytes = std::uintmax_t{64} << 20;

absl::Status Wrong(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<std::string> ReadConfig(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path,
                                            ": expected a file, found none; is this a "
                                            "Hugging Face folder?"));
  }
  if (!fs::is_regular_file(path, error)) return Wrong(path, "expected a regular file");
  if (const std::uintmax_t bytes = fs::file_size(path, error); bytes > kMaxConfigBytes) {
    return Wrong(path, absl::StrCat("expected at most ", kMaxConfigBytes, " bytes, found ", bytes));
  }
  return ReadWholeFile(path);
}

// The safetensors of the directory; says what to do about weights of another form.
absl::StatusOr<SafetensorsSet> OpenTensors(const std::string& directory) {
  const absl::StatusOr<std::string> path = SafetensorsSet::FindIn(directory);
  if (!path.ok()) {
    for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5"}) {
      std::error_code error;
      if (!fs::exists(absl::StrCat(directory, "/", other), error)) continue;
      return absl::NotFoundError(
          absl::StrCat(directory, ": expected model.safetensors, found ", other,
                       "; try to load it in transformers and save it again"));
    }
    return path.status();
  }
  return SafetensorsSet::Open(*path);
}

// A constant that old folders have.
bool IsInverseFrequency(const std::string& name) {
  return absl::EndsWith(name, "rotary_emb.inv_freq");
}

}  // namespace

bool HfFolder::Is(const std::string& directory) {
  std::error_code error;
  return fs::exists(absl::StrCat(directory, "/config.json"), error) &&
         !fs::exists(absl::StrCat(directory, "/state.textproto"), error);
}

HfFolder::HfFolder(std::string directory, std::string config_text, HfModel hf,
                   SafetensorsSet tensors)
    : directory_(std::move(directory)),
      config_text_(std::move(config_text)),
      hf_(std::move(hf)),
      tensors_(std::move(tensors)),
      map_(MapTensors(*hf_.family, hf_.model)) {}

absl::StatusOr<HfFolder> HfFolder::Open(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(
        absl::StrCat(directory, ": expected a directory, found ",
                     fs::exists(directory, error) ? "something else" : "none"));
  }
  const std::string config_path = absl::StrCat(directory, "/config.json");
  HW_ASSIGN_OR_RETURN(std::string text, ReadConfig(config_path));
  absl::StatusOr<HfModel> hf = ParseHfConfig(text);
  if (!hf.ok()) return FileIsBad(config_path, hf.status());
  HW_ASSIGN_OR_RETURN(SafetensorsSet tensors, OpenTensors(directory));
  HfFolder folder(directory, std::move(text), *std::move(hf), std::move(tensors));
  HW_RETURN_IF_ERROR(folder.CheckTensors());
  return folder;
}

absl::Status HfFolder::CheckTensors() {
  std::vector<std::string> expected;
  for (const auto& [name, shape] : map_.tensors()) expected.push_back(name);
  for (const SafetensorsTensor* tensor : tensors_.tensors()) {
    const std::string& path = tensors_.FileOf(tensor->name);
    const auto it = map_.tensors().find(tensor->name);
    const bool tied = hf_.model.tied_head() && tensor->name == "lm_head.weight";
    if (it == map_.tensors().end() && !tied) {
      bool known = IsInverseFrequency(tensor->name);
      for (const std::string& beginning : family().not_run) {
        known = known || absl::StartsWith(tensor->name, beginning);
      }
      if (!known) {
        return Wrong(path, absl::StrCat("holds a tensor ", tensor->name, " that a ",
                                        family().model_type, " of this config.json does not have",
                                        DidYouMean(tensor->name, expected)));
      }
      if (!tensor->dtype.has_value()) {
        return Wrong(path, absl::StrCat(tensor->name, ": ", tensor->dtype_name,
                                        " cannot be carried through; expected F32, BF16, F16, "
                                        "F64, I32, I64, U8 or U16"));
      }
      not_run_.push_back(tensor->name);
      continue;
    }
    if (!tensor->dtype.has_value() || !IsWeightType(*tensor->dtype)) {
      return Wrong(path, absl::StrCat(tensor->name, ": ", tensor->dtype_name,
                                      " is not supported: expected F32, BF16 or F16; quantised "
                                      "weights must be dequantised first"));
    }
    const Shape expected_shape = tied ? Shape{hf_.model.vocab_size(), hf_.model.dim()} : it->second;
    if (tensor->shape != expected_shape) {
      return Wrong(path, absl::StrCat(tensor->name, ": expected ", ToString(expected_shape),
                                      " by config.json, found ", ToString(tensor->shape)));
    }
  }
  for (const std::string& name : expected) {
    if (tensors_.Find(name) == nullptr) {
      return Wrong(tensors_.path(),
                   absl::StrCat("expected a tensor ", name, " ", ToString(map_.tensors().at(name)),
                                " by config.json, found none"));
    }
  }
  return absl::OkStatus();
}

absl::Status HfFolder::Read(const ParameterMap& parameter, const Tensor& value) const {
  HW_CHECK(value.shape() == parameter.shape) << parameter.parameter;
  std::string name;
  Tensor tensor;
  for (const TensorPiece& piece : parameter.pieces) {
    if (piece.tensor != name) {
      tensor = Tensor();  // before the next one takes memory
      name = piece.tensor;
      HW_ASSIGN_OR_RETURN(tensor, tensors_.Read(name));
      if (const absl::Status finite = CheckFinite(name, tensor); !finite.ok()) {
        return FileIsBad(tensors_.FileOf(name), finite);
      }
    }
    CopyIn(piece, tensor, value.data<float>());
  }
  return absl::OkStatus();
}

absl::Status HfFolder::CheckTiedHead() const {
  if (!hf_.model.tied_head() || tensors_.Find("lm_head.weight") == nullptr) {
    return absl::OkStatus();
  }
  const std::string& embedding_name = map_.Find("embedding.weight")->pieces[0].tensor;
  HW_ASSIGN_OR_RETURN(const Tensor head, tensors_.Read("lm_head.weight"));
  HW_ASSIGN_OR_RETURN(const Tensor embedding, tensors_.Read(embedding_name));
  if (head.dtype() == embedding.dtype() &&
      std::memcmp(head.raw_data(), embedding.raw_data(), static_cast<std::size_t>(head.bytes())) ==
          0) {
    return absl::OkStatus();
  }
  return Wrong(tensors_.FileOf("lm_head.weight"),
               absl::StrCat("lm_head.weight differs from ", embedding_name,
                            ", but config.json has tie_word_embeddings true; expected equal "
                            "weights, or false"));
}

absl::Status HfFolder::LoadWeights(const ModelConfig& model,
                                   const std::vector<Parameter*>& parameters) const {
  HW_RETURN_IF_ERROR(CheckTiedHead());
  const TensorMap map = MapTensors(family(), model);
  const auto differ = [&](const std::string& name) {
    return Wrong(directory_, absl::StrCat("is a model_type ", family().model_type,
                                          " that does not fit the model asked for, in ", name,
                                          "; expected the folder's own model"));
  };
  for (const auto& [name, shape] : map.tensors()) {
    const auto it = map_.tensors().find(name);
    if (it == map_.tensors().end() || it->second != shape) return differ(name);
  }
  for (const auto& [name, shape] : map_.tensors()) {
    if (map.tensors().count(name) == 0) return differ(name);
  }
  for (const Parameter* parameter : parameters) {
    if (map.Find(parameter->name) == nullptr) return differ(parameter->name);
  }
  for (const Parameter* parameter : parameters) {
    HW_RETURN_IF_ERROR(Read(*map.Find(parameter->name), parameter->value));
  }
  return absl::OkStatus();
}

}  // namespace headwise
