// Checkpoints: RUN/step-N/ with model.safetensors (weights), optimizer.safetensors (momentum and
// moments) and state.textproto (step, data position, configuration, versions, checksums).
//
// A checkpoint is written beside its place, synced, and renamed into it: after a crash at any
// moment the newest complete one is found, and a broken one is never chosen. Tensors are stored
// under their logical names in their logical shapes.
//
// To run a trained model (model/decoder.h, model/kv_cache.h):
//
//   HW_ASSIGN_OR_RETURN(const FoundCheckpoint found, OpenRunOrCheckpoint("runs/muse_demo"));
//   const DecoderOptions options = {.compute = DType::kBF16, .mode = DecoderMode::kInference};
//   HW_ASSIGN_OR_RETURN(const auto decoder,
//                       Decoder::Create(found.state.config().model(), options));
//   HW_RETURN_IF_ERROR(LoadWeights(found, decoder->parameters()));
//   decoder->WeightsChanged(pool);
//   HW_ASSIGN_OR_RETURN(const auto cache, decoder->NewCache(/*rows=*/1, /*max_tokens=*/64));
//   const std::vector<std::vector<std::int32_t>> prompt = {{116, 104, 101, 32}};
//   const Tensor logits = decoder->Extend(*cache, prompt, pool);  // [1, V], of the next token
#ifndef HEADWISE_MODEL_TRAIN_CHECKPOINT_H_
#define HEADWISE_MODEL_TRAIN_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/atomic_directory.h"
#include "core/io/file_system.h"
#include "core/proto/checkpoint.pb.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"

namespace headwise {

inline constexpr std::int64_t kCheckpointFormatVersion = 1;

// A checkpoint on disk that passed every check, of its weights at least.
struct FoundCheckpoint {
  std::string directory;  // "runs/demo/step-400"
  CheckpointState state = {};
  std::vector<std::string> rejected = {};  // newer ones that are broken, each with the reason
};

// Writes run_directory/step-<state.step>/; fills in the versions and the list of files. Then
// removes all but the newest `keep` checkpoints (0 keeps all). `hook` is for tests.
absl::Status SaveCheckpoint(const std::string& run_directory, CheckpointState state,
                            const std::vector<Parameter*>& parameters,
                            const std::vector<NamedTensor>& optimizer_state, std::int64_t keep,
                            const FileHook& hook = nullptr);

// Completes a directory that holds model.safetensors, and other files with these names, as a
// checkpoint of weights only at step 0: runs can start from it, not resume it. Writes its state and
// commits.
absl::Status CommitWeights(AtomicDirectory& directory, const RunConfig& config,
                           const std::vector<std::string>& other_files);

// The newest checkpoint whose files are all there with the right sizes and checksums; nullopt if
// run_directory has no step-* directory at all (or does not exist). kDataLoss if it has some and
// every one is broken.
absl::StatusOr<std::optional<FoundCheckpoint>> FindCheckpoint(const std::string& run_directory);

// Reads and checks the one checkpoint at `directory`, likewise.
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& directory);

// For its weights: `path` as a checkpoint, or the newest of a run directory whose files are whole,
// but for the optimizer's, which may be broken or missing. kNotFound if it is neither.
absl::StatusOr<FoundCheckpoint> OpenRunOrCheckpoint(const std::string& path);

// Fills the parameters' values. kDataLoss names the first tensor that is missing, unknown or of
// another shape or dtype, found and expected; the parameters are then unchanged.
absl::Status LoadWeights(const FoundCheckpoint& checkpoint,
                         const std::vector<Parameter*>& parameters);

// Fills the optimizer's state, likewise. kFailedPrecondition if the checkpoint holds weights only.
absl::Status LoadOptimizerState(const FoundCheckpoint& checkpoint,
                                const std::vector<NamedTensor>& state);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_CHECKPOINT_H_
