// Generate: continues a prompt token by token through the KV cache, and streams the text.
#ifndef HEADWISE_MODEL_GENERATE_GENERATE_H_
#define HEADWISE_MODEL_GENERATE_GENERATE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"
#include "model/generate/sampler.h"

namespace headwise {

struct GenerateOptions {
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t max_tokens = 200;     // new ones
  SamplerOptions sampler;
  std::string stop;  // ends the text at its first occurrence, which is not written; empty: none
};

struct GenerateReport {
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;  // drawn
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of the tokens after the first
  // On a GPU: of the graph that decoding replayed; 0 if there was no decoding.
  int graph_kernels = 0;
};

// A prompt as the model's tokens: bytes for a byte model; ids separated by commas or spaces
// ("12,7,99") otherwise. kInvalidArgument for an empty prompt, something that is no id, or a token
// outside the vocabulary.
absl::StatusOr<std::vector<std::int32_t>> EncodePrompt(const RunConfig& config,
                                                       const std::string& prompt);

// A token as text: its byte for a byte model ("<300>" past 255), its id and a space otherwise.
std::string DecodeToken(const DataConfig& data, std::int32_t token);

// What the model is asked to continue when the user gives no prompt.
std::string DefaultPrompt(const RunConfig& config);

// kInvalidArgument for a sampler that cannot be, or a prompt and new tokens that do not fit
// model.max_sequence_length.
absl::Status CheckGenerateOptions(const ModelConfig& model, const GenerateOptions& options);

// Writes the prompt and its continuation to `out` as they come; a control character other than
// newline and tab is written as "\x1b". Errors of CheckGenerateOptions; on a GPU kResourceExhausted
// if there is no room for the cache; kAborted if the logits are not numbers.
absl::StatusOr<GenerateReport> Generate(Decoder& decoder, const DataConfig& data,
                                        const GenerateOptions& options, std::FILE* out,
                                        ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_MODEL_GENERATE_GENERATE_H_
