// The CUDA kernels, emulated, have the bits of embedding.h's CPU kernels: whole tables and shards,
// odd sizes, layouts and values, in three thread orders, with every buffer a region whose gaps are
// out of bounds; and tokens outside the vocabulary are found.
#include "kernels/common/testing/emulated.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/embedding/cuda.h"
#include "kernels/embedding/embedding.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

struct Shape {
  std::int64_t tokens, rows, width;
  Layout layout = Layout::kStrided;
  bool specials = false;
  VocabularyShard shard = {};
};

// Tokens of the whole vocabulary, one of them in half of all places.
std::vector<std::int32_t> Tokens(const Shape& s) {
  std::mt19937_64 random(s.tokens + 31 * s.rows);
  const auto vocabulary =
      static_cast<std::uint64_t>(s.shard.vocabulary == 0 ? s.rows : s.shard.vocabulary);
  std::vector<std::int32_t> tokens(s.tokens);
  for (std::int32_t& token : tokens) {
    const std::uint64_t draw = random();
    token = draw % 2 == 0 ? static_cast<std::int32_t>(vocabulary / 2)
                          : static_cast<std::int32_t>(draw / 2 % vocabulary);
  }
  return tokens;
}

template <typename T>
struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        tokens(Tokens(s)),
        table(s.rows, s.width, s.layout),
        dtable(table),
        dout(s.tokens, s.width, s.layout),
        out(dout),
        scratch(EmbeddingBackwardScratch(s.tokens, s.rows), -1) {
    s.specials ? FillWithSpecials(table, 1) : Fill(table, 1);
    s.specials ? FillWithSpecials(dout, 2) : Fill(dout, 2);
  }
  void AddRegions(emulation::Session& session) {
    AddArray(session, "tokens", absl::MakeConstSpan(tokens));
    AddMatrix(session, "table", table.view());
    AddMatrix(session, "dout", dout.view());
    AddMatrix(session, "out", out.span());
    AddMatrix(session, "dtable", dtable.span());
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    session.AddRegion("first_bad_token", &first_bad_token, sizeof(first_bad_token),
                      emulation::Access::kReadWrite);
  }
  absl::Status RunForward() {
    return cuda_emulated::EmbeddingForward<T>(tokens, table.view(), out.span(), &first_bad_token,
                                              nullptr, shape.shard);
  }
  absl::Status RunBackward() {
    return cuda_emulated::EmbeddingBackward<T>(tokens, dout.view(), dtable.span(), scratch.data(),
                                               &first_bad_token, nullptr, shape.shard);
  }

  Shape shape;
  std::vector<std::int32_t> tokens;
  TestMatrix<float> table, dtable;
  TestMatrix<T> dout, out;
  std::vector<std::int32_t> scratch;
  std::uint64_t first_bad_token = kNone;
};

template <typename T>
void ExpectCpuBits(const Shape& shape,
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  Problem<T> expected(shape);
  ThreadPool pool(1);
  EmbeddingForward<T>(expected.tokens, expected.table.view(), expected.out.span(), pool,
                      shape.shard);
  EmbeddingBackward<T>(expected.tokens, expected.dout.view(), expected.dtable.span(), pool,
                       shape.shard);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " tokens, " << shape.rows << " x "
                                    << shape.width << ", order " << static_cast<int>(order.order));
    Problem<T> actual(shape);
    emulation::Session session(order);
    actual.AddRegions(session);
    ASSERT_EQ(actual.RunForward(), absl::OkStatus());
    ASSERT_EQ(actual.RunBackward(), absl::OkStatus());
    ExpectSameBits<T>(actual.out.view(), expected.out.view(), "out");
    ExpectSameBits<float>(actual.dtable.view(), expected.dtable.view(), "dtable");
    actual.out.ExpectGapsUntouched();
    actual.dtable.ExpectGapsUntouched();
    EXPECT_EQ(actual.first_bad_token, kNone);
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedEmbedding : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedEmbedding, StorageTypes);

TYPED_TEST(EmulatedEmbedding, HasTheCpusBits) {
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided, Layout::kAligned}) {
    for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257, 600}) {
      ExpectCpuBits<TypeParam>({tokens, 37, 9, layout});
    }
    for (const std::int64_t width : {0, 1, 4, 7, 8, 64, 130}) {
      ExpectCpuBits<TypeParam>({70, 300, width, layout});
    }
    ExpectCpuBits<TypeParam>({130, 1, 16, layout});
    ExpectCpuBits<TypeParam>({300, 20, 24, layout, /*specials=*/true});
  }
}

TYPED_TEST(EmulatedEmbedding, HasTheCpusBitsOfShards) {
  for (const std::int64_t begin : {0, 11, 20, 40}) {
    ExpectCpuBits<TypeParam>(
        {150, 11, 8, Layout::kAligned, false, {.begin = begin, .vocabulary = 51}});
  }
  ExpectCpuBits<TypeParam>({50, 0, 8, Layout::kAligned, false, {.begin = 3, .vocabulary = 51}});
}

TYPED_TEST(EmulatedEmbedding, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits<TypeParam>({70, 20, 12, Layout::kStrided, /*specials=*/true},
                           absl::MakeConstSpan(kThreadOrders).subspan(2));
}

// Nothing is written for them, they add to no gradient, and the first is kept.
TYPED_TEST(EmulatedEmbedding, TokensOutsideTheVocabularyAreLeftOutAndReported) {
  using T = TypeParam;
  for (const std::int32_t bad : {-1, 37, 2000000000, -2147483647}) {
    Problem<T> clean({200, 37, 8, Layout::kAligned}), p = clean;
    TestMatrix<float> expected = p.dtable;
    for (const int t : {150, 71, 199}) {
      p.tokens[t] = bad;
      for (int i = 0; i < 8; ++i) clean.dout.at(t, i) = Narrow<T>(0.0f);
    }
    ThreadPool pool(1);
    EmbeddingBackward<T>(clean.tokens, clean.dout.view(), expected.span(), pool);
    const TestMatrix<T> untouched = p.out;
    emulation::Session session(kThreadOrders[2]);
    p.AddRegions(session);
    ASSERT_EQ(p.RunForward(), absl::OkStatus());
    EXPECT_EQ(p.first_bad_token, 71);
    p.first_bad_token = 100;  // kept where it is smaller
    ASSERT_EQ(p.RunBackward(), absl::OkStatus());
    EXPECT_EQ(p.first_bad_token, 71);
    ExpectSameBits<T>(p.out.view().Rows(71, 1), untouched.view().Rows(71, 1), "a bad token's row");
    ExpectSameBits<float>(p.dtable.view(), expected.view(), "dtable");
  }
}

TEST(EmulatedEmbeddingTraffic, IsEveryElementOnce) {
  constexpr std::int64_t kTokens = 64, kRows = 40, kWidth = 256;
  SectorRows<float> table(kRows, kWidth), dtable(kRows, kWidth);
  SectorRows<BFloat16> out(kTokens, kWidth);
  const std::vector<std::int32_t> tokens = Tokens({kTokens, kRows, kWidth});
  std::vector<std::int32_t> scratch(EmbeddingBackwardScratch(kTokens, kRows));
  std::uint64_t bad = kNone;
  const auto session_of = [&](emulation::Session& session) {
    AddArray(session, "tokens", absl::MakeConstSpan(tokens));
    AddMatrix(session, "table", table.span());
    AddMatrix(session, "dtable", dtable.span());
    AddMatrix(session, "out", out.span());
    AddArray(session, "scratch", absl::MakeSpan(scratch));
  };
  {
    emulation::Session session({.count_traffic = true});
    session_of(session);
    ASSERT_EQ(
        cuda_emulated::EmbeddingForward<BFloat16>(tokens, table.span(), out.span(), &bad, nullptr),
        absl::OkStatus());
    EXPECT_EQ(session.launches().size(), 1);
    EXPECT_EQ(session.traffic("table").loads, kTokens * kWidth * 4);
    EXPECT_EQ(session.traffic("out").stores, kTokens * kWidth * 2);
    EXPECT_EQ(session.traffic("out").partly_used_sectors, 0);
  }
  emulation::Session session({.count_traffic = true});
  session_of(session);
  ASSERT_EQ(cuda_emulated::EmbeddingBackward<BFloat16>(tokens, out.span(), dtable.span(),
                                                       scratch.data(), &bad, nullptr),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 3);
  EXPECT_EQ(session.traffic("out").loads, kTokens * kWidth * 2);
  EXPECT_EQ(session.traffic("dtable").stores, kRows * kWidth * 4);
  EXPECT_EQ(session.traffic("dtable").atomics, 0);
  for (const char* name : {"out", "dtable"}) {
    EXPECT_EQ(session.traffic(name).partly_used_sectors, 0) << name;
  }
}

TEST(EmulatedEmbeddingDeathTest, ProgrammersErrors) {
  Problem<float> p({3, 5, 8});
  TestMatrix<float> wide(3, 9);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::EmbeddingForward<float>(
                   p.tokens, p.table.view(), wide.span(), &p.first_bad_token, nullptr)),
               "8 vs 9");
  EXPECT_DEATH(static_cast<void>(cuda_emulated::EmbeddingForward<float>(
                   p.tokens, p.table.view(), p.out.span(), nullptr, nullptr)),
               "first_bad_token");
  EXPECT_DEATH(static_cast<void>(cuda_emulated::EmbeddingForward<float>(
                   p.tokens, p.table.view(), p.out.span(), &p.first_bad_token, nullptr,
                   {.begin = 1, .vocabulary = 5})),
               "ids \\[1, 6\\) of a vocabulary of 5");
}

}  // namespace
}  // namespace headwise
