#include "core/io/token_file.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

  template <typename T>
  static std::string Raw(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  static std::string LlmCHeader(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
    std::vector<std::int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = tokens;
    return Raw(header);
  }

  std::string ErrorOf(const std::string& bytes, TokenFile::Options options) {
    const absl::Status status = TokenFile::Open(Write(bytes), options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(path_));
    return std::string(status.message());
  }

  static std::vector<std::int32_t> All(const TokenFile& file) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
    file.Copy(0, absl::MakeSpan(tokens));
    return tokens;
  }

  const std::string path_ = testing::TempDir() + "/tokens";
};

TEST_F(TokenFileTest, BytesAreTokensWhateverTheirValue) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const TokenFile file = *TokenFile::Open(Write(bytes), {.vocab_size = 256});
  ASSERT_EQ(file.size(), 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(file[i], i);
}

TEST_F(TokenFileTest, RawTokens) {
  const TokenFile u16 = *TokenFile::Open(Write(Raw<std::uint16_t>({0, 50256, 65535})),
                                         {.encoding = TokenEncoding::kUint16});
  EXPECT_THAT(All(u16), ElementsAre(0, 50256, 65535));
  const TokenFile u32 = *TokenFile::Open(Write(Raw<std::uint32_t>({1, 128255, 0x7fffffff})),
                                         {.encoding = TokenEncoding::kUint32});
  EXPECT_THAT(All(u32), ElementsAre(1, 128255, 0x7fffffff));
}

TEST_F(TokenFileTest, LlmCLayouts) {
  const TokenFile gpt2 =
      *TokenFile::Open(Write(LlmCHeader(20240520, 1, 3) + Raw<std::uint16_t>({7, 50256, 40000})),
                       {.encoding = TokenEncoding::kLlmC, .vocab_size = 50257});
  EXPECT_THAT(All(gpt2), ElementsAre(7, 50256, 40000));
  const TokenFile llama =
      *TokenFile::Open(Write(LlmCHeader(20240801, 7, 2) + Raw<std::uint32_t>({128000, 5})),
                       {.encoding = TokenEncoding::kLlmC});
  EXPECT_THAT(All(llama), ElementsAre(128000, 5));
}

TEST_F(TokenFileTest, CopyTakesAWindow) {
  const TokenFile file = *TokenFile::Open(Write("abcdef"), {});
  std::vector<std::int32_t> window(3);
  file.Copy(2, absl::MakeSpan(window));
  EXPECT_THAT(window, ElementsAre('c', 'd', 'e'));
  file.Copy(6, {});
  EXPECT_DEATH(file.Copy(4, absl::MakeSpan(window)), "tokens \\[4, 4 \\+ 3\\) of 6");
  EXPECT_DEATH(file.Copy(-1, absl::MakeSpan(window)), "of 6");
  EXPECT_DEATH(file[6], "token 6 of 6");
}

TEST_F(TokenFileTest, MissingAndEmptyFiles) {
  const absl::Status missing = TokenFile::Open("/no/such/text.txt", {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(),
              AllOf(HasSubstr("/no/such/text.txt"), HasSubstr("No such file"), HasSubstr("check")));
  EXPECT_THAT(ErrorOf("", {}), HasSubstr("the file is empty"));
  EXPECT_THAT(ErrorOf(LlmCHeader(20240520, 1, 0), {.encoding = TokenEncoding::kLlmC}),
              HasSubstr("holds no tokens"));
  EXPECT_THAT(TokenFile::Open(testing::TempDir(), {}).status().message(),
              HasSubstr("Is a directory"));
}

TEST_F(TokenFileTest, OddSizes) {
  EXPECT_THAT(ErrorOf("abc", {.encoding = TokenEncoding::kUint16}),
              HasSubstr("3 bytes are no whole number of uint16 tokens of 2 bytes"));
  EXPECT_THAT(ErrorOf("abcdef", {.encoding = TokenEncoding::kUint32}),
              HasSubstr("6 bytes are no whole number of uint32 tokens of 4 bytes"));
}

TEST_F(TokenFileTest, TokensOutsideTheVocabularyAreNamedByPosition) {
  EXPECT_THAT(ErrorOf("ab\xc3\xa9", {.vocab_size = 128}),
              AllOf(HasSubstr("token 195 at position 2 (byte 2)"), HasSubstr("vocabulary of 128")));
  EXPECT_THAT(ErrorOf(LlmCHeader(20240520, 1, 2) + Raw<std::uint16_t>({7, 50257}),
                      {.encoding = TokenEncoding::kLlmC, .vocab_size = 50257}),
              HasSubstr("token 50257 at position 1 (byte 1026)"));
  // Not even without a vocabulary may a token turn negative.
  for (const std::int64_t vocab_size : {std::int64_t{0}, std::int64_t{1} << 40}) {
    EXPECT_THAT(ErrorOf(Raw<std::uint32_t>({0, 0x80000000u}),
                        {.encoding = TokenEncoding::kUint32, .vocab_size = vocab_size}),
                HasSubstr("token 2147483648 at position 1 (byte 4)"));
  }
  EXPECT_TRUE(TokenFile::Open(Write("ab\x7f"), {.vocab_size = 128}).ok());
}

TEST_F(TokenFileTest, LlmCHeaderErrors) {
  const TokenFile::Options options{.encoding = TokenEncoding::kLlmC};
  EXPECT_THAT(
      ErrorOf("plain text", options),
      HasSubstr("truncated: an llm.c token file begins with 1024 bytes of header, found 10"));
  EXPECT_THAT(ErrorOf(std::string(2000, ' '), options),
              AllOf(HasSubstr("not an llm.c token file: found magic 538976288"),
                    HasSubstr("20240520 version 1 or 20240801 version 7")));
  EXPECT_THAT(ErrorOf(LlmCHeader(20240520, 2, 1) + "ab", options), HasSubstr("version 2"));
  EXPECT_THAT(ErrorOf(LlmCHeader(20240520, 1, 3) + "abcd", options),
              AllOf(HasSubstr("says 3 tokens of 2 bytes"), HasSubstr("a file of 1030 bytes"),
                    HasSubstr("found 1028")));
  EXPECT_THAT(ErrorOf(LlmCHeader(20240520, 1, -3) + "abcd", options), HasSubstr("-3 tokens"));
}

}  // namespace
}  // namespace headwise
