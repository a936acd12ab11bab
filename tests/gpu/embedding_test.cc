// embedding on a GPU has the bits of the CPU path, of whole tables and of shards, and finds tokens
// outside the vocabulary.
#include "kernels/embedding/embedding.h"

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/embedding/cuda.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// `table.rows` ids of `shard.vocabulary`, or all.
struct Case {
  std::int64_t tokens;
  TestShape table;
  VocabularyShard shard = {};
};

// One token in half of all places.
std::vector<std::int32_t> Tokens(const Case& c) {
  std::mt19937_64 random(c.tokens);
  const auto vocabulary =
      static_cast<std::uint64_t>(c.shard.vocabulary == 0 ? c.table.rows : c.shard.vocabulary);
  std::vector<std::int32_t> tokens(c.tokens);
  for (std::int32_t& token : tokens) {
    const std::uint64_t draw = random();
    token = static_cast<std::int32_t>(draw % 2 == 0 ? vocabulary / 2 : draw / 2 % vocabulary);
  }
  return tokens;
}

// With `bad`, tokens 71, 150 and 199 are outside the vocabulary. What remains are the same sums as
// those of gradients that are zero there, of values that are not.
template <typename T>
void ExpectCpuBits(const Case& c, bool bad = false) {
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, table " << c.table);
  std::vector<std::int32_t> tokens = Tokens(c);
  const auto table = MatrixOf<float>(c.table, 1);
  auto dout = MatrixOf<T>({c.tokens, c.table.width, c.table.layout, c.table.specials}, 2);
  TestMatrix<T> out(c.tokens, c.table.width, c.table.layout), expected(out), zeros(dout);
  TestMatrix<float> dtable(c.table.rows, c.table.width, c.table.layout), expected_dtable(dtable);
  const TestMatrix<T> untouched = out;
  const std::vector<std::int64_t> places =
      bad ? std::vector<std::int64_t>{71, 150, 199} : std::vector<std::int64_t>{};
  for (const std::int64_t t : places) {
    for (std::int64_t i = 0; i < c.table.width; ++i) zeros.at(t, i) = T{};
  }
  EmbeddingForward<T>(tokens, table.view(), expected.span(), CpuThreads(), c.shard);
  EmbeddingBackward<T>(tokens, zeros.view(), expected_dtable.span(), CpuThreads(), c.shard);
  for (const std::int64_t t : places) {
    tokens[t] = t == 71 ? -1 : static_cast<std::int32_t>(c.table.rows + t);
    for (std::int64_t i = 0; i < c.table.width; ++i) expected.at(t, i) = untouched.at(t, i);
  }

  OnDevice device;
  const auto gpu_tokens = device.In(absl::MakeConstSpan(tokens));
  const RowSpan<const float> gpu_table = device.In(table);
  const RowSpan<const T> gpu_dout = device.In(dout);
  const RowSpan<T> gpu_out = device.Out(out);
  const RowSpan<float> gpu_dtable = device.Out(dtable);
  auto* const scratch =
      device.Scratch<std::int32_t>(EmbeddingBackwardScratch(c.tokens, c.table.rows));
  std::uint64_t* const fault = device.Fault();
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    HW_RETURN_IF_ERROR(
        Kernels<T>().EmbeddingForward(gpu_tokens, gpu_table, gpu_out, fault, stream, c.shard));
    return Kernels<T>().EmbeddingBackward(gpu_tokens, gpu_dout, gpu_dtable, scratch, fault, stream,
                                          c.shard);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  EXPECT_EQ(device.fault(), bad ? 71 : kNone);
  ExpectSameBits<T>(out.view(), expected.view(), "out");
  ExpectSameBits<float>(dtable.view(), expected_dtable.view(), "dtable");
  out.ExpectGapsUntouched();
  dtable.ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    ExpectCpuBits<float>(c);
    ExpectCpuBits<BFloat16>(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuEmbedding, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{70, {20, 12, Layout::kStrided, /*specials=*/true}},
                 {65, {11, 8, Layout::kAligned}, {.begin = 20, .vocabulary = 51}}});
}

TEST(GpuEmbedding, ForSanitizersTokensOutsideTheVocabularyAreLeftOutAndReported) {
  ExpectCpuBits<float>({201, {37, 16}}, /*bad=*/true);
  ExpectCpuBits<BFloat16>({201, {37, 16}}, /*bad=*/true);
}

TEST(GpuEmbedding, HasTheCpusBits) {
  ExpectCpuBits({{1, {257, 1024}},
                 {1031, {257, 512}},
                 {2049, {5003, 259, Layout::kStrided, /*specials=*/true}},
                 {1025, {4096, 512, Layout::kAligned}, {.begin = 4096, .vocabulary = 16384}}});
}

TEST(GpuLargeEmbedding, HasTheCpusBits) { ExpectCpuBits({{8193, {50257, 512}}}); }

}  // namespace
}  // namespace headwise
