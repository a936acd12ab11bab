#include "model/cli/run_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/tensor/tensor.h"
#include "model/bench/batches.h"
#include "model/gpu/tensors.h"
#include "model/kv_cache.h"
#include "model/train/run_config.h"
#include "optim/parameter.h"

namespace headwise {
namespace {

// By way of the host.
absl::Status LoadOnGpu(const ModelSource& source, const ModelConfig& model, Gpu& gpu,
                       const std::vector<Parameter*>& parameters) {
  std::vector<Parameter> on_host;
  on_host.reserve(parameters.size());
  for (const Parameter* p : parameters) {
    on_host.push_back({.name = p->name,
                       .role = p->role,
                       .value = Tensor::Zeros(p->value.shape(), p->value.dtype(), Device::kCpu),
                       .head_blocks = p->head_blocks});
  }
  std::vector<Parameter*> pointers;
  pointers.reserve(on_host.size());
  for (Parameter& parameter : on_host) pointers.push_back(&parameter);
  HW_RETURN_IF_ERROR(source.LoadWeights(model, pointers));
  std::vector<Tensor> values;
  values.reserve(on_host.size());
  for (const Parameter& parameter : on_host) values.push_back(parameter.value);
  return UploadValues(gpu, values, parameters);
}

}  // namespace

absl::StatusOr<std::int64_t> DecoderMemory(const ModelConfig& model, DecoderOptions options,
                                           const DecoderUse& use) {
  options.device = Device::kMeta;
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> meta, Decoder::Create(model, options));
  std::int64_t bytes = meta->weight_copy_bytes();
  for (const Parameter* p : meta->parameters()) bytes += p->value.bytes() + p->gradient.bytes();
  ThreadPool pool(1);
  if (use.loss_tokens > 0) {
    meta->Loss(RandomTrainingBatch(use.loss_tokens, use.loss_tokens, model.vocab_size()), pool);
  }
  if (use.cache_tokens > 0) {
    HW_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache, meta->NewCache(1, use.cache_tokens));
    bytes += cache->bytes();
    // Chunk by chunk, each is as large as the first.
    const auto prompt = static_cast<std::size_t>(std::min(use.prompt_tokens, kExtendChunk));
    meta->Extend(*cache, std::vector<std::vector<std::int32_t>>{std::vector<std::int32_t>(prompt)},
                 pool);
  }
  return bytes + meta->peak_activation_bytes();
}

absl::StatusOr<std::unique_ptr<Decoder>> MakeDecoder(const ModelSource& source,
                                                     const RunConfig& config,
                                                     const CommandDevice& device,
                                                     const DecoderUse& use, ThreadPool& pool) {
  DecoderOptions options = DecoderOptionsOf(config.training());
  options.mode = DecoderMode::kInference;
  device.Choose(&options);
  if (device.on_gpu()) {
    HW_ASSIGN_OR_RETURN(const std::int64_t needed, DecoderMemory(config.model(), options, use));
    HW_RETURN_IF_ERROR(CheckFreeMemory(*options.gpu, config.model().name(), needed));
  }
  HW_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(config.model(), options));
  HW_RETURN_IF_ERROR(device.on_gpu()
                         ? LoadOnGpu(source, config.model(), *options.gpu, decoder->parameters())
                         : source.LoadWeights(config.model(), decoder->parameters()));
  decoder->WeightsChanged(pool);
  return decoder;
}

}  // namespace headwise
