#include "model/hf/convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_directory.h"
#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_writer.h"
#include "model/hf/carried_files.h"
#include "model/hf/hf_config.h"
#include "model/hf/shard_plan.h"
#include "model/hf/tensor_copy.h"
#include "model/hf/tensor_map.h"
#include "model/report/transfer_progress.h"
#include "model/train/checkpoint.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "model.safetensors";

double BytesOf(const SafetensorsEntry& entry) {
  return static_cast<double>(NumElements(entry.shape) * SizeOf(entry.dtype));
}

absl::Status CheckTarget(const std::string& to) {
  std::error_code error;
  if (fs::symlink_status(to, error).type() == fs::file_type::not_found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(to, ": is there already; expected a new directory; try another, or remove it"));
}

// The tensors of Hugging Face that a native checkpoint's weights make, one at a time.
class TensorMaker {
 public:
  TensorMaker(const SafetensorsFile& weights, const TensorMap& map)
      : weights_(weights), map_(map) {}

  // kDataLoss unless the file holds exactly the map's parameters, in fp32.
  absl::Status CheckParameters() const {
    for (const ParameterMap& parameter : map_.parameters()) {
      const SafetensorsTensor* found = weights_.Find(parameter.parameter);
      if (found == nullptr || found->dtype != DType::kF32 || found->shape != parameter.shape) {
        return absl::DataLossError(absl::StrCat(
            weights_.path(), ": expected a tensor ", parameter.parameter, " F32 ",
            ToString(parameter.shape), ", found ",
            found == nullptr ? "none"
                             : absl::StrCat(found->dtype_name, " ", ToString(found->shape))));
      }
    }
    for (const SafetensorsTensor& tensor : weights_.tensors()) {
      if (map_.Find(tensor.name) == nullptr) {
        return absl::DataLossError(
            absl::StrCat(weights_.path(), ": holds an unknown tensor ", tensor.name));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Make(const SafetensorsEntry& entry) {
    Tensor tensor = Tensor::Empty(entry.shape, entry.dtype, Device::kCpu);
    for (const TensorPiece* piece : map_.PiecesOf(entry.name)) {
      if (piece->parameter != name_) {
        parameter_ = Tensor();  // before the next one takes memory
        name_ = piece->parameter;
        HW_ASSIGN_OR_RETURN(parameter_, weights_.Read(name_));
      }
      CopyOut(*piece, parameter_.data<float>(), tensor);
    }
    if (const absl::Status finite = CheckFinite(entry.name, tensor); !finite.ok()) {
      return absl::DataLossError(absl::StrCat(weights_.path(), ": ", finite.message()));
    }
    return tensor;
  }

 private:
  const SafetensorsFile& weights_;
  const TensorMap& map_;
  std::string name_;  // of parameter_
  Tensor parameter_;
};

absl::Status WriteShards(const AtomicDirectory& directory, const std::vector<Shard>& shards,
                         const std::optional<CarriedFiles>& carried, TensorMaker& maker,
                         TransferProgress& progress) {
  for (const Shard& shard : shards) {
    HW_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                        SafetensorsWriter::Create(
                            directory.PathOf(shard.file), shard.entries,
                            {.metadata = {{"format", "pt"}}, .order = SafetensorsOrder::kAsGiven}));
    for (const SafetensorsEntry& entry : writer->entries()) {
      const bool unused = carried.has_value() && carried->unused.has_value() &&
                          carried->unused->Find(entry.name) != nullptr;
      HW_ASSIGN_OR_RETURN(const Tensor tensor,
                          unused ? carried->unused->Read(entry.name) : maker.Make(entry));
      HW_RETURN_IF_ERROR(writer->Append(tensor));
      progress.Add(BytesOf(entry));
    }
    HW_RETURN_IF_ERROR(writer->Commit());
  }
  if (shards.size() == 1) return absl::OkStatus();
  return WriteFileAtomically(directory.PathOf("model.safetensors.index.json"), ShardIndex(shards));
}

// Every tensor of the folder to write, sorted by name; counts those that are not run.
absl::StatusOr<std::vector<SafetensorsEntry>> Entries(const TensorMap& map,
                                                      const std::optional<CarriedFiles>& carried,
                                                      ConvertReport* report) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, shape] : map.tensors()) {
    DType dtype = DType::kF32;
    if (carried.has_value()) {
      const auto it = carried->dtypes.find(name);
      if (it != carried->dtypes.end()) dtype = it->second;
    }
    entries.push_back({name, dtype, shape});
  }
  if (carried.has_value() && carried->unused.has_value()) {
    for (const SafetensorsTensor& tensor : carried->unused->tensors()) {
      if (map.tensors().count(tensor.name) != 0 || !tensor.dtype.has_value()) {
        return absl::DataLossError(absl::StrCat(carried->unused->path(), ": ", tensor.name,
                                                ": expected a tensor that the model does not run"));
      }
      entries.push_back({tensor.name, *tensor.dtype, tensor.shape});
      if (report->not_run++ == 0) report->first_not_run = tensor.name;
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; });
  return entries;
}

void Finish(const TransferProgress& progress, ConvertReport* report) {
  report->tensors = progress.items_done();
  report->bytes = progress.bytes_done();
  report->seconds = progress.seconds();
}

}  // namespace

absl::StatusOr<ConvertReport> HfToNative(const HfFolder& folder, const std::string& to,
                                         const RunConfig& config, const ConvertOptions& options) {
  HW_CHECK(ModelDifference(config.model(), folder.model()).empty());
  HW_RETURN_IF_ERROR(CheckTarget(to));
  HW_RETURN_IF_ERROR(folder.CheckTiedHead());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicDirectory> directory,
                      AtomicDirectory::Create(to));
  std::vector<SafetensorsEntry> entries;
  double bytes = 0;
  for (const ParameterMap& parameter : folder.map().parameters()) {
    entries.push_back({parameter.parameter, DType::kF32, parameter.shape});
    bytes += BytesOf(entries.back());
  }
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                      SafetensorsWriter::Create(directory->PathOf(kWeights), std::move(entries),
                                                {.metadata = {{"format", "headwise"}}}));
  ConvertReport report{.model_type = folder.family().model_type, .files = 1};
  TransferProgress progress(options.progress, "convert", "tensors",
                            static_cast<std::int64_t>(writer->entries().size()), bytes);
  for (const SafetensorsEntry& entry : writer->entries()) {
    const Tensor value = Tensor::Empty(entry.shape, DType::kF32, Device::kCpu);
    HW_RETURN_IF_ERROR(folder.Read(*folder.map().Find(entry.name), value));
    HW_RETURN_IF_ERROR(writer->Append(value));
    progress.Add(BytesOf(entry));
  }
  HW_RETURN_IF_ERROR(writer->Commit());
  HW_ASSIGN_OR_RETURN(const std::vector<std::string> files, WriteCarried(folder, *directory));
  HW_RETURN_IF_ERROR(CommitWeights(*directory, config, files));
  Finish(progress, &report);
  report.not_run = static_cast<std::int64_t>(folder.not_run().size());
  if (report.not_run > 0) report.first_not_run = folder.not_run()[0];
  return report;
}

absl::StatusOr<ConvertReport> NativeToHf(const std::string& from, const std::string& to,
                                         const ConvertOptions& options) {
  HW_CHECK_GT(options.max_shard_bytes, 0);
  HW_RETURN_IF_ERROR(CheckTarget(to));
  HW_ASSIGN_OR_RETURN(const FoundCheckpoint checkpoint, OpenRunOrCheckpoint(from));
  const ModelConfig& model = checkpoint.state.config().model();
  HW_ASSIGN_OR_RETURN(const std::optional<CarriedFiles> carried, ReadCarried(checkpoint.directory));
  const absl::StatusOr<std::string> text =
      carried.has_value() ? UpdateHfConfig(carried->config_text, model) : HfConfigOf(model);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(checkpoint.directory, ": ", text.status().message()));
  }
  HW_ASSIGN_OR_RETURN(const HfModel hf, ParseHfConfig(*text));
  const TensorMap map = MapTensors(*hf.family, model);
  HW_ASSIGN_OR_RETURN(const SafetensorsFile weights,
                      SafetensorsFile::Open(absl::StrCat(checkpoint.directory, "/", kWeights)));
  TensorMaker maker(weights, map);
  HW_RETURN_IF_ERROR(maker.CheckParameters());

  ConvertReport report{.model_type = hf.family->model_type};
  HW_ASSIGN_OR_RETURN(const std::vector<SafetensorsEntry> entries, Entries(map, carried, &report));
  const std::vector<Shard> shards = PlanShards(entries, options.max_shard_bytes);
  report.files = static_cast<std::int64_t>(shards.size());
  double bytes = 0;
  for (const SafetensorsEntry& entry : entries) bytes += BytesOf(entry);
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicDirectory> directory,
                      AtomicDirectory::Create(to));
  TransferProgress progress(options.progress, "convert", "tensors",
                            static_cast<std::int64_t>(entries.size()), bytes);
  HW_RETURN_IF_ERROR(WriteShards(*directory, shards, carried, maker, progress));
  HW_RETURN_IF_ERROR(WriteFileAtomically(directory->PathOf("config.json"), *text));
  if (carried.has_value()) HW_RETURN_IF_ERROR(CopyOthers(*carried, *directory));
  HW_RETURN_IF_ERROR(directory->Commit(AtomicDirectory::Existing::kRefuse));
  Finish(progress, &report);
  return report;
}

}  // namespace headwise
