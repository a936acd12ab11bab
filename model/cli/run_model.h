// MakeDecoder: a trained model's decoder, for inference, on the device that a command was given.
//
//   HW_ASSIGN_OR_RETURN(const CommandDevice device, OpenDevice(flags.device));
//   HW_ASSIGN_OR_RETURN(const auto decoder,
//                       MakeDecoder(source, config, device, {.cache_tokens = 512}, pool));
#ifndef HEADWISE_MODEL_CLI_RUN_MODEL_H_
#define HEADWISE_MODEL_CLI_RUN_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "model/cli/device.h"
#include "model/decoder.h"
#include "model/hf/model_source.h"

namespace headwise {

// What a command asks of a decoder, at its largest.
struct DecoderUse {
  std::int64_t loss_tokens = 0;    // of a batch whose loss is asked for
  std::int64_t cache_tokens = 0;   // of a cache of one row; 0: none
  std::int64_t prompt_tokens = 0;  // given to it at once
};

// Bytes of a decoder with this use: parameters with the gradients and low-precision copies that
// `options` give them, activations and cache. Counted on Device::kMeta.
absl::StatusOr<std::int64_t> DecoderMemory(const ModelConfig& model, DecoderOptions options,
                                           const DecoderUse& use);

// In DecoderMode::kInference, with the weights of the source, which is of config.model(). On a GPU
// kResourceExhausted, with figures and before anything is allocated, if it has less than
// DecoderMemory(); besides, kInvalidArgument as Decoder::Create, and the errors of loading.
absl::StatusOr<std::unique_ptr<Decoder>> MakeDecoder(const ModelSource& source,
                                                     const RunConfig& config,
                                                     const CommandDevice& device,
                                                     const DecoderUse& use, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_RUN_MODEL_H_
