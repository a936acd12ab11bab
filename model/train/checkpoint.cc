#include "model/train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_writer.h"
#include "core/proto/message_fields.h"
#include "google/protobuf/text_format.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/config.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "model.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "state.textproto";
constexpr char kPrefix[] = "step-";

using TensorList = std::vector<std::pair<std::string, Tensor>>;

TensorList Tensors(const std::vector<Parameter*>& parameters) {
  TensorList list;
  for (const Parameter* p : parameters) list.emplace_back(p->name, p->value);
  return list;
}

TensorList Tensors(const std::vector<NamedTensor>& state) {
  TensorList list;
  for (const NamedTensor& s : state) list.emplace_back(s.name, s.tensor);
  return list;
}

// (step, directory) of every step-N under run_directory, newest first.
std::vector<std::pair<std::int64_t, std::string>> ListSteps(const std::string& run_directory) {
  std::vector<std::pair<std::int64_t, std::string>> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_directory, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step;
    if (name.rfind(kPrefix, 0) == 0 && absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step) &&
        step >= 0) {
      steps.emplace_back(step, entry.path().string());
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::Status Corrupt(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

absl::Status CheckFile(const std::string& directory, const CheckpointFile& file) {
  const std::string path = absl::StrCat(directory, "/", file.name());
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error)
    return Corrupt(path, absl::StrCat("expected a file of ", file.bytes(), " bytes, found none"));
  if (static_cast<std::int64_t>(bytes) != file.bytes()) {
    return Corrupt(path, absl::StrCat("expected ", file.bytes(), " bytes, found ", bytes));
  }
  HW_ASSIGN_OR_RETURN(const std::uint64_t checksum, ChecksumFile(path));
  if (ChecksumToHex(checksum) != file.fnv1a64()) {
    return Corrupt(path, absl::StrCat("expected checksum ", file.fnv1a64(), ", found ",
                                      ChecksumToHex(checksum)));
  }
  return absl::OkStatus();
}

// Every tensor of the file by name, shape and dtype against the destinations; reads only when all
// agree.
absl::Status LoadTensors(const std::string& path, const TensorList& destinations) {
  HW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [name, tensor] : destinations) {
    const SafetensorsTensor* found = file.Find(name);
    if (found == nullptr)
      return Corrupt(path, absl::StrCat("expected a tensor ", name, ", found none"));
    if (found->shape != tensor.shape() || found->dtype_name != Name(tensor.dtype())) {
      return Corrupt(path, absl::StrCat(name, ": expected ", Name(tensor.dtype()), " ",
                                        ToString(tensor.shape()), ", found ", found->dtype_name,
                                        " ", ToString(found->shape)));
    }
  }
  if (file.tensors().size() != destinations.size()) {
    std::map<std::string, bool> known;
    for (const auto& destination : destinations) known[destination.first] = true;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (!known.count(tensor.name))
        return Corrupt(path, absl::StrCat("holds an unknown tensor ", tensor.name));
    }
  }
  for (const auto& [name, tensor] : destinations) HW_RETURN_IF_ERROR(file.ReadInto(name, tensor));
  return absl::OkStatus();
}

absl::Status AddFileEntry(const AtomicDirectory& directory, const std::string& name,
                          CheckpointState* state) {
  const std::string path = directory.PathOf(name);
  HW_ASSIGN_OR_RETURN(const std::uint64_t checksum, ChecksumFile(path));
  std::error_code error;
  CheckpointFile& file = *state->add_files();
  file.set_name(name);
  file.set_bytes(static_cast<std::int64_t>(fs::file_size(path, error)));
  file.set_fnv1a64(ChecksumToHex(checksum));
  return error ? FileError(error.value(), "read", path) : absl::OkStatus();
}

absl::Status CheckVersions(const std::string& path, const CheckpointState& state) {
  const auto check = [&](const char* what, std::int64_t found, std::int64_t expected) {
    if (found == expected) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", what, ": expected version ",
                                                      expected, ", found ", found,
                                                      "; try the release that wrote it"));
  };
  HW_RETURN_IF_ERROR(check("format_version", state.format_version(), kCheckpointFormatVersion));
  HW_RETURN_IF_ERROR(
      check("prepare_qkv_contract", state.prepare_qkv_contract(), kPrepareQkvContractVersion));
  HW_RETURN_IF_ERROR(check("newton_schulz_contract", state.newton_schulz_contract(),
                           kNewtonSchulzContractVersion));
  return check("muon_step_contract", state.muon_step_contract(), kMuonStepContractVersion);
}

// Fills in the versions and the list of files, writes the state, commits.
absl::Status CommitWithState(AtomicDirectory& directory, CheckpointState state,
                             const std::vector<std::string>& files, const FileHook& hook,
                             AtomicDirectory::Existing existing) {
  state.set_format_version(kCheckpointFormatVersion);
  state.set_prepare_qkv_contract(kPrepareQkvContractVersion);
  state.set_newton_schulz_contract(kNewtonSchulzContractVersion);
  state.set_muon_step_contract(kMuonStepContractVersion);
  state.clear_files();
  for (const std::string& name : files) {
    HW_RETURN_IF_ERROR(AddFileEntry(directory, name, &state));
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(state, &text);
  HW_RETURN_IF_ERROR(WriteFileAtomically(directory.PathOf(kState), text, {.hook = hook}));
  return directory.Commit(existing);
}

}  // namespace

absl::Status CommitWeights(AtomicDirectory& directory, const RunConfig& config,
                           const std::vector<std::string>& other_files) {
  CheckpointState state;
  *state.mutable_config() = config;
  state.set_weights_only(true);
  std::vector<std::string> files = {kWeights};
  files.insert(files.end(), other_files.begin(), other_files.end());
  return CommitWithState(directory, std::move(state), files, nullptr,
                         AtomicDirectory::Existing::kRefuse);
}

absl::Status SaveCheckpoint(const std::string& run_directory, CheckpointState state,
                            const std::vector<Parameter*>& parameters,
                            const std::vector<NamedTensor>& optimizer_state, std::int64_t keep,
                            const FileHook& hook) {
  state.clear_weights_only();
  const std::string path = absl::StrCat(run_directory, "/", kPrefix, state.step());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicDirectory> directory,
                      AtomicDirectory::Create(path, hook));
  SafetensorsWriteOptions options{.metadata = {{"format", "headwise"}}, .file = {.hook = hook}};
  HW_RETURN_IF_ERROR(WriteSafetensors(directory->PathOf(kWeights), Tensors(parameters), options));
  HW_RETURN_IF_ERROR(
      WriteSafetensors(directory->PathOf(kOptimizer), Tensors(optimizer_state), options));
  HW_RETURN_IF_ERROR(CommitWithState(*directory, std::move(state), {kWeights, kOptimizer}, hook,
                                     AtomicDirectory::Existing::kReplace));

  if (keep == 0) return absl::OkStatus();
  const auto steps = ListSteps(run_directory);
  const FileSystem files(hook);
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    if (const int error = files.RemoveTree(steps[i].second); error != 0) {
      return FileError(error, "remove the old checkpoint", steps[i].second);
    }
  }
  return absl::OkStatus();
}

namespace {

// What a checkpoint is opened for, which is what must be whole of it.
enum class Use { kResume, kWeights };

absl::StatusOr<FoundCheckpoint> Open(const std::string& directory, Use use) {
  const std::string path = absl::StrCat(directory, "/", kState);
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  FoundCheckpoint found{.directory = directory};
  if (const absl::Status status = ParseTextProto(path, text, &found.state); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  HW_RETURN_IF_ERROR(CheckVersions(path, found.state));
  const std::int64_t batch = found.state.config().training().batch_size();
  const std::string name = fs::path(directory).filename().string();
  std::int64_t named = found.state.step();
  if (name.rfind(kPrefix, 0) == 0 && !absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &named))
    named = -1;
  if (found.state.step() < 0 || named != found.state.step() ||
      found.state.next_sequence() != found.state.step() * batch) {
    return Corrupt(path, absl::StrCat("step ", found.state.step(), ", next_sequence ",
                                      found.state.next_sequence(), " and batch_size ", batch,
                                      " do not fit one another and the directory's name"));
  }
  if (const absl::Status status = ValidateModelConfig(found.state.config().model()); !status.ok()) {
    return Corrupt(path, std::string(status.message()));
  }
  std::map<std::string, bool> listed;
  for (const CheckpointFile& file : found.state.files()) {
    listed[file.name()] = true;
    if (use == Use::kWeights && file.name() == kOptimizer) continue;
    HW_RETURN_IF_ERROR(CheckFile(directory, file));
  }
  std::vector<std::string> wanted = {kWeights};
  if (use == Use::kResume && !found.state.weights_only()) wanted.push_back(kOptimizer);
  for (const std::string& name : wanted) {
    if (!listed.count(name))
      return Corrupt(path, absl::StrCat("expected an entry for ", name, ", found none"));
  }
  return found;
}

absl::StatusOr<std::optional<FoundCheckpoint>> Find(const std::string& run_directory, Use use) {
  const auto steps = ListSteps(run_directory);
  std::vector<std::string> rejected;
  for (const auto& [step, directory] : steps) {
    absl::StatusOr<FoundCheckpoint> found = Open(directory, use);
    if (found.ok()) {
      found->rejected = std::move(rejected);
      return std::optional<FoundCheckpoint>(*std::move(found));
    }
    if (found.status().code() == absl::StatusCode::kFailedPrecondition) return found.status();
    rejected.emplace_back(found.status().message());
  }
  if (rejected.empty()) return std::optional<FoundCheckpoint>();
  return absl::DataLossError(absl::StrCat(run_directory, ": none of its ", rejected.size(),
                                          " checkpoints is whole; the newest: ", rejected[0],
                                          "; try another --run directory"));
}

}  // namespace

absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& directory) {
  return Open(directory, Use::kResume);
}

absl::StatusOr<std::optional<FoundCheckpoint>> FindCheckpoint(const std::string& run_directory) {
  return Find(run_directory, Use::kResume);
}

absl::StatusOr<FoundCheckpoint> OpenRunOrCheckpoint(const std::string& path) {
  std::error_code error;
  if (fs::exists(absl::StrCat(path, "/", kState), error)) return Open(path, Use::kWeights);
  HW_ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> found, Find(path, Use::kWeights));
  if (found.has_value()) return *std::move(found);
  return absl::NotFoundError(
      absl::StrCat(path, ": expected a run directory with step-N in it, or one checkpoint, found ",
                   fs::exists(path, error) ? "neither" : "no such directory"));
}

absl::Status LoadWeights(const FoundCheckpoint& checkpoint,
                         const std::vector<Parameter*>& parameters) {
  return LoadTensors(absl::StrCat(checkpoint.directory, "/", kWeights), Tensors(parameters));
}

absl::Status LoadOptimizerState(const FoundCheckpoint& checkpoint,
                                const std::vector<NamedTensor>& state) {
  if (checkpoint.state.weights_only()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory, ": holds weights only; expected an optimizer state to ",
                     "resume; try another --run with --init ", checkpoint.directory));
  }
  return LoadTensors(absl::StrCat(checkpoint.directory, "/", kOptimizer), Tensors(state));
}

}  // namespace headwise
