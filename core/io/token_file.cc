#include "core/io/token_file.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"

namespace headwise {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t kLlmCHeaderBytes = 256 * 4;

struct LlmCFormat {
  std::int32_t magic;
  std::int32_t version;
  int width;
};
constexpr LlmCFormat kLlmCFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

// Where the tokens lie in the file.
struct Layout {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  int width = 1;
};

std::uint32_t LoadToken(const char* p, int width) {
  switch (width) {
    case 1:
      return static_cast<unsigned char>(*p);
    case 2: {
      std::uint16_t token;
      std::memcpy(&token, p, sizeof(token));
      return token;
    }
    default: {
      std::uint32_t token;
      std::memcpy(&token, p, sizeof(token));
      return token;
    }
  }
}

absl::StatusOr<Layout> ParseLlmCHeader(const std::string& path, const std::string& bytes) {
  const auto file_bytes = static_cast<std::int64_t>(bytes.size());
  if (file_bytes < kLlmCHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": truncated: an llm.c token file begins with ", kLlmCHeaderBytes,
                     " bytes of header, found ", file_bytes));
  }
  std::int32_t header[3];  // magic, version, tokens
  std::memcpy(header, bytes.data(), sizeof(header));
  for (const LlmCFormat& format : kLlmCFormats) {
    if (header[0] != format.magic || header[1] != format.version) continue;
    const Layout layout{kLlmCHeaderBytes, header[2], format.width};
    const std::int64_t expected = kLlmCHeaderBytes + layout.size * format.width;
    if (layout.size < 0 || expected != file_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the header says ", header[2], " tokens of ", format.width,
                       " bytes, which makes a file of ", expected, " bytes, found ", file_bytes));
    }
    return layout;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": not an llm.c token file: found magic ", header[0], " version ", header[1],
      ", expected 20240520 version 1 or 20240801 version 7; for other "
      "files choose the format bytes, uint16 or uint32"));
}

absl::StatusOr<Layout> FindLayout(const std::string& path, const std::string& bytes,
                                  TokenEncoding encoding) {
  if (encoding == TokenEncoding::kLlmC) return ParseLlmCHeader(path, bytes);
  const int width = encoding == TokenEncoding::kBytes    ? 1
                    : encoding == TokenEncoding::kUint16 ? 2
                                                         : 4;
  const auto file_bytes = static_cast<std::int64_t>(bytes.size());
  if (file_bytes % width != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file_bytes, " bytes are no whole number of ", Name(encoding),
                     " tokens of ", width, " bytes; is it truncated, or of another format?"));
  }
  return Layout{0, file_bytes / width, width};
}

}  // namespace

const char* Name(TokenEncoding encoding) {
  switch (encoding) {
    case TokenEncoding::kBytes:
      return "bytes";
    case TokenEncoding::kUint16:
      return "uint16";
    case TokenEncoding::kUint32:
      return "uint32";
    case TokenEncoding::kLlmC:
      return "llm.c";
  }
  return "?";
}

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path, Options options) {
  HW_CHECK_GE(options.vocab_size, 0);
  HW_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(path));
  if (bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  }
  HW_ASSIGN_OR_RETURN(const Layout layout, FindLayout(path, bytes, options.encoding));
  if (layout.size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file holds no tokens"));
  }
  TokenFile file(std::make_shared<const std::string>(std::move(bytes)), layout.begin, layout.size,
                 layout.width);
  const std::int64_t limit =
      options.vocab_size > 0
          ? options.vocab_size
          : static_cast<std::int64_t>(std::numeric_limits<std::int32_t>::max()) + 1;
  for (std::int64_t i = 0; i < file.size(); ++i) {
    const std::uint32_t token = file.At(i);
    if (token < limit && token <= std::numeric_limits<std::int32_t>::max()) continue;
    return absl::OutOfRangeError(absl::StrCat(
        path, ": token ", token, " at position ", i, " (byte ", layout.begin + i * layout.width,
        ") is outside the vocabulary of ", limit, "; read as ", Name(options.encoding),
        ", is it of another format, or for another model?"));
  }
  return file;
}

TokenFile::TokenFile(std::shared_ptr<const std::string> bytes, std::int64_t begin,
                     std::int64_t size, int width)
    : bytes_(std::move(bytes)), begin_(begin), size_(size), width_(width) {}

std::uint32_t TokenFile::At(std::int64_t i) const {
  return LoadToken(bytes_->data() + begin_ + i * width_, width_);
}

std::int32_t TokenFile::operator[](std::int64_t i) const {
  HW_CHECK(i >= 0 && i < size_) << "token " << i << " of " << size_;
  return static_cast<std::int32_t>(At(i));
}

void TokenFile::Copy(std::int64_t begin, absl::Span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  HW_CHECK(begin >= 0 && count <= size_ && begin <= size_ - count)
      << "tokens [" << begin << ", " << begin << " + " << count << ") of " << size_;
  for (std::int64_t i = 0; i < count; ++i) {
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(At(begin + i));
  }
}

}  // namespace headwise
