// TokenFile: a text or token file in memory, as int32 tokens.
//
//   HW_ASSIGN_OR_RETURN(const TokenFile text, TokenFile::Open("text.txt", {.vocab_size = 256}));
//   std::vector<std::int32_t> window(513);
//   text.Copy(/*begin=*/1000, absl::MakeSpan(window));
//
// Encodings, all little-endian:
//
//   kBytes: every byte is a token, 0 to 255.
//   kUint16: raw 16-bit tokens, as nanoGPT's prepare.py writes train.bin.
//   kUint32: raw 32-bit tokens.
//   kLlmC: llm.c's layout. 256 int32, of which [0] is the magic number, [1] the version and [2] the
//     number of tokens; then the tokens. Magic 20240520, version 1: 16-bit tokens (GPT-2). Magic
//     20240801, version 7: 32-bit tokens (Llama 3).
//
// The file's own width is kept in memory, so it takes as much memory as disk. Immutable; copies
// share the bytes; thread-safe. Errors name the path and, for a token, its position: missing or
// empty file, a size that is no whole number of tokens, a token outside the vocabulary, a header
// that is not llm.c's or disagrees with the size.
#ifndef HEADWISE_CORE_IO_TOKEN_FILE_H_
#define HEADWISE_CORE_IO_TOKEN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headwise {

enum class TokenEncoding { kBytes, kUint16, kUint32, kLlmC };

// "bytes", "uint16", "uint32", "llm.c".
const char* Name(TokenEncoding encoding);

class TokenFile {
 public:
  struct Options {
    TokenEncoding encoding = TokenEncoding::kBytes;
    // Every token must be below it. 0: not checked, except that a token must fit in an int32.
    std::int64_t vocab_size = 0;
  };

  static absl::StatusOr<TokenFile> Open(const std::string& path, Options options);

  // Number of tokens, at least 1.
  std::int64_t size() const { return size_; }
  // 0 <= i < size() (checked).
  std::int32_t operator[](std::int64_t i) const;
  // Tokens [begin, begin + out.size()), which must lie in the file (checked).
  void Copy(std::int64_t begin, absl::Span<std::int32_t> out) const;

 private:
  TokenFile(std::shared_ptr<const std::string> bytes, std::int64_t begin, std::int64_t size,
            int width);

  // The token at `i`, not checked.
  std::uint32_t At(std::int64_t i) const;

  std::shared_ptr<const std::string> bytes_;  // the whole file
  std::int64_t begin_;                        // byte at which the tokens begin
  std::int64_t size_;
  int width_;  // bytes of a token: 1, 2 or 4
};

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_TOKEN_FILE_H_
