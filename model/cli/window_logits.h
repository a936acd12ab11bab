// window_logits: the logits of one stretch of tokens, in a file that other programs read.
#ifndef HEADWISE_MODEL_CLI_WINDOW_LOGITS_H_
#define HEADWISE_MODEL_CLI_WINDOW_LOGITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/io/token_file.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"

namespace headwise {

// kFailedPrecondition if there is something at `path` already, whatever it is, kNotFound if there is
// no directory for it.
absl::Status CheckNewFile(const std::string& path);

// Writes tokens.0, I32 [T], the first T tokens, and logits.0, F32 [T, V], the transformed logits
// after each, decoded one by one, as a safetensors file.
absl::Status WriteWindowLogits(const TokenFile& tokens, std::int64_t count, Decoder& decoder,
                               ThreadPool& pool, const std::string& path);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_WINDOW_LOGITS_H_
