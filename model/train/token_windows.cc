#include "model/train/token_windows.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace headwise {

absl::StatusOr<TokenFile> OpenTokens(const DataConfig& data, std::int64_t vocab_size) {
  TokenEncoding encoding = TokenEncoding::kBytes;
  if (data.format() == UINT16) encoding = TokenEncoding::kUint16;
  if (data.format() == UINT32) encoding = TokenEncoding::kUint32;
  if (data.format() == LLM_C) encoding = TokenEncoding::kLlmC;
  std::error_code error;
  if (std::filesystem::exists(data.path(), error) &&
      !std::filesystem::is_regular_file(data.path(), error)) {
    return absl::DataLossError(
        absl::StrCat(data.path(), ": expected a regular file, found something else"));
  }
  absl::StatusOr<TokenFile> file =
      TokenFile::Open(data.path(), {.encoding = encoding, .vocab_size = vocab_size});
  if (file.status().code() == absl::StatusCode::kInvalidArgument) {
    // What is wrong is in the file, not in a setting.
    return absl::DataLossError(file.status().message());
  }
  return file;
}

void AppendWindow(const TokenFile& tokens, std::int64_t begin, std::int64_t length,
                  std::int64_t separator, TokenBatch* batch) {
  std::int64_t document = static_cast<std::int64_t>(batch->inputs.size());
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(batch->inputs.size());
    const bool ends_document = separator >= 0 && tokens[begin + i] == separator;
    batch->inputs.push_back(tokens[begin + i]);
    batch->targets.push_back(ends_document ? kIgnoredTarget : tokens[begin + i + 1]);
    batch->positions.push_back(at - document);
    if (ends_document || i + 1 == length) {
      const std::int64_t count = at + 1 - document;
      batch->segments.push_back({.query_begin = document,
                                 .num_queries = count,
                                 .key_begin = document,
                                 .num_keys = count});
      document = at + 1;
    }
  }
}

std::int64_t NumTargets(const TokenBatch& batch) {
  std::int64_t n = 0;
  for (const std::int32_t target : batch.targets) n += target != kIgnoredTarget;
  return n;
}

}  // namespace headwise
