// token_windows: a text's tokens by a DataConfig, and windows of them as batches.
//
//   HW_ASSIGN_OR_RETURN(const TokenFile tokens, OpenTokens(config.data(), 256));
//   TokenBatch batch;
//   AppendWindow(tokens, /*begin=*/0, /*length=*/512, /*separator=*/-1, &batch);
//
// A window of `length` tokens predicts, of each, the token after it, so that it reads one token
// more. With a separator, attention and positions restart after it, and the token after a separator
// is not predicted from it.
#ifndef HEADWISE_MODEL_TRAIN_TOKEN_WINDOWS_H_
#define HEADWISE_MODEL_TRAIN_TOKEN_WINDOWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/io/token_file.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"

namespace headwise {

// data.path as data.format says. Errors name the path: a file that is missing, empty or no regular
// file, a token outside of the vocabulary (with its index).
absl::StatusOr<TokenFile> OpenTokens(const DataConfig& data, std::int64_t vocab_size);

// Appends tokens [begin, begin + length), and their targets up to begin + length, which must lie in
// the file (checked).
void AppendWindow(const TokenFile& tokens, std::int64_t begin, std::int64_t length,
                  std::int64_t separator, TokenBatch* batch);

// Targets that count: those that are not ignored.
std::int64_t NumTargets(const TokenBatch& batch);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_TOKEN_WINDOWS_H_
