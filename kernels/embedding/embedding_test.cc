#include "kernels/embedding/embedding.h"

#include <random>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/common/vocabulary_shard.h"

namespace headwise {
namespace {

constexpr std::int64_t kVocabulary = 23;

// Tokens that come again and again; the last of the vocabulary never does.
std::vector<std::int32_t> Tokens(std::int64_t count) {
  std::mt19937 random(5);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(random() % (kVocabulary - 1));
  return tokens;
}

template <typename T>
void ExpectReferenceBits(std::int64_t count, std::int64_t width, Layout layout, int threads) {
  using C = Compute<T>;
  const std::string what = std::to_string(count) + " x " + std::to_string(width);
  const std::vector<std::int32_t> tokens = Tokens(count);
  ThreadPool pool(threads);

  TestMatrix<C> table(kVocabulary, width, layout);
  TestMatrix<T> out(count, width, layout), expected_out(count, width);
  FillWithSpecials(table, 1);
  EmbeddingForward<T>(tokens, table.view(), out.span(), pool);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      expected_out.at(t, i) = Narrow<T>(table.at(tokens[t], i));
    }
  }
  ExpectSameBits(out.view(), expected_out.view(), "out " + what);
  out.ExpectGapsUntouched();

  TestMatrix<T> dout(count, width, layout);
  TestMatrix<C> dtable(kVocabulary, width, layout), expected_dtable(kVocabulary, width);
  FillWithSpecials(dout, 2);
  EmbeddingBackward<T>(tokens, dout.view(), dtable.span(), pool);
  for (std::int64_t v = 0; v < kVocabulary; ++v) {
    for (std::int64_t i = 0; i < width; ++i) {
      C sum = 0;
      for (std::int64_t t = 0; t < count; ++t) {
        if (tokens[t] == v) sum = sum + Widen(dout.at(t, i));
      }
      expected_dtable.at(v, i) = sum;
    }
  }
  ExpectSameBits(dtable.view(), expected_dtable.view(), "dtable " + what);
  dtable.ExpectGapsUntouched();
}

template <typename T>
class EmbeddingTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(EmbeddingTest, StorageTypes);

TYPED_TEST(EmbeddingTest, EqualsTheReferenceForOddShapesAndThreads) {
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t size : kOddSizes) {
      ExpectReferenceBits<TypeParam>(40, size, Layout::kStrided, threads);
      ExpectReferenceBits<TypeParam>(size, 17, Layout::kContiguous, threads);
    }
  }
}

// Rows [begin[i], begin[i + 1]) of the vocabulary: even, uneven, empty and single shards.
const std::vector<std::vector<std::int64_t>> kCuts = {
    {0, 23}, {0, 12, 23}, {0, 1, 20, 23}, {0, 0, 7, 7, 23}, {0, 5, 11, 23, 23}};

template <typename C>
RowSpan<const C> Part(const TestMatrix<C>& table, const std::vector<std::int64_t>& cuts,
                      std::size_t shard) {
  return table.view().Rows(cuts[shard], cuts[shard + 1] - cuts[shard]);
}

template <typename T>
void ExpectShardsMakeTheWhole(std::int64_t count, std::int64_t width,
                              const std::vector<std::int64_t>& cuts, int threads) {
  using C = Compute<T>;
  const std::string what = std::to_string(count) + " x " + std::to_string(width) + ", " +
                           std::to_string(cuts.size() - 1) + " shards";
  const std::vector<std::int32_t> tokens = Tokens(count);
  ThreadPool pool(threads);
  TestMatrix<C> table(kVocabulary, width), dtable(kVocabulary, width);
  TestMatrix<T> out(count, width), dout(count, width);
  FillWithSpecials(table, 3);
  FillWithSpecials(dout, 4);
  EmbeddingForward<T>(tokens, table.view(), out.span(), pool);
  EmbeddingBackward<T>(tokens, dout.view(), dtable.span(), pool);

  TestMatrix<C> dparts(kVocabulary, width, Layout::kStrided);
  TestMatrix<T> sum(count, width), expected_sum(count, width);
  const auto add_to_sum = [&](const TestMatrix<T>& from, TestMatrix<T>& to) {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        to.at(t, i) = Narrow<T>(Widen(to.at(t, i)) + Widen(from.at(t, i)));
      }
    }
  };
  for (TestMatrix<T>* m : {&sum, &expected_sum}) {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t i = 0; i < width; ++i) m->at(t, i) = Narrow<T>(0);
    }
  }
  add_to_sum(out, expected_sum);  // -0 becomes +0
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    const VocabularyShard shard = {.begin = cuts[s], .vocabulary = kVocabulary};
    TestMatrix<T> part(count, width, Layout::kStrided), expected_part(count, width);
    EmbeddingForward<T>(tokens, Part(table, cuts, s), part.span(), pool, shard);
    for (std::int64_t t = 0; t < count; ++t) {
      const bool here = tokens[t] >= cuts[s] && tokens[t] < cuts[s + 1];
      for (std::int64_t i = 0; i < width; ++i) {
        expected_part.at(t, i) = here ? out.at(t, i) : Narrow<T>(0);
      }
    }
    ExpectSameBits(part.view(), expected_part.view(), "out of a shard, " + what);
    part.ExpectGapsUntouched();
    add_to_sum(part, sum);
    EmbeddingBackward<T>(tokens, dout.view(), dparts.span().Rows(cuts[s], cuts[s + 1] - cuts[s]),
                         pool, shard);
  }
  ExpectSameBits(sum.view(), expected_sum.view(), "sum of the shards, " + what);
  ExpectSameBits(dparts.view(), dtable.view(), "dtable of the shards, " + what);
  dparts.ExpectGapsUntouched();
}

TYPED_TEST(EmbeddingTest, ShardsOfTheVocabularyMakeTheWhole) {
  for (const std::vector<std::int64_t>& cuts : kCuts) {
    for (const std::int64_t size : {0, 1, 2, 63, 65, 257}) {
      ExpectShardsMakeTheWhole<TypeParam>(size, 17, cuts, 2);
      ExpectShardsMakeTheWhole<TypeParam>(40, size, cuts, 3);
    }
  }
}

TEST(Embedding, GradientIsTheDerivative) {
  const std::vector<std::int32_t> tokens = Tokens(40);
  TestMatrix<double> table(kVocabulary, 6), dout(40, 6), out(40, 6), dtable(kVocabulary, 6);
  Fill(table, 1);
  Fill(dout, 2);
  ThreadPool pool(1);
  EmbeddingBackward<double>(tokens, dout.view(), dtable.span(), pool);
  const auto loss = [&] {
    EmbeddingForward<double>(tokens, table.view(), out.span(), pool);
    double sum = 0;
    for (int t = 0; t < 40; ++t) {
      for (int i = 0; i < 6; ++i) sum += out.at(t, i) * dout.at(t, i);
    }
    return sum;
  };
  ExpectGradient(table, dtable.view(), loss, "dtable");
}

TEST(EmbeddingDeathTest, ATokenOutOfRangeIsNamed) {
  TestMatrix<float> table(kVocabulary, 4), rows(3, 4);
  Fill(table, 1);
  Fill(rows, 2);
  ThreadPool pool(1);
  const std::int32_t high[] = {1, 2, 23}, negative[] = {0, -1, 0};
  EXPECT_DEATH(EmbeddingForward<float>(high, table.view(), rows.span(), pool),
               "token 23 at index 2, vocabulary 23");
  EXPECT_DEATH(EmbeddingForward<float>(negative, table.view(), rows.span(), pool),
               "token -1 at index 1");
  EXPECT_DEATH(EmbeddingBackward<float>(high, rows.view(), table.span(), pool),
               "token 23 at index 2");
}

TEST(EmbeddingDeathTest, AShardLiesWithinItsVocabulary) {
  TestMatrix<float> table(4, 4), rows(3, 4);
  Fill(table, 1);
  ThreadPool pool(1);
  const std::int32_t tokens[] = {1, 2, 29}, beyond[] = {1, 30, 2};
  const auto run = [&](absl::Span<const std::int32_t> ids, VocabularyShard shard) {
    EmbeddingForward<float>(ids, table.view(), rows.span(), pool, shard);
  };
  run(tokens, {.begin = 26, .vocabulary = 30});
  EXPECT_DEATH(run(beyond, {.begin = 26, .vocabulary = 30}), "token 30 at index 1, vocabulary 30");
  EXPECT_DEATH(run(tokens, {.begin = 27, .vocabulary = 30}),
               "ids \\[27, 31\\) of a vocabulary of 30");
  EXPECT_DEATH(run(tokens, {.begin = -1, .vocabulary = 30}), "ids \\[-1, 3\\)");
  EXPECT_DEATH(run(tokens, {.begin = 1}), "ids \\[1, 5\\) of a vocabulary of 4");
}

TEST(EmbeddingDeathTest, ShapesMustAgree) {
  TestMatrix<float> table(kVocabulary, 4), narrow(3, 3), rows(3, 4);
  ThreadPool pool(1);
  const std::int32_t tokens[] = {1, 2, 3};
  EXPECT_DEATH(EmbeddingForward<float>(tokens, table.view(), narrow.span(), pool), "4 vs 3");
  EXPECT_DEATH(EmbeddingForward<float>({tokens, 2}, table.view(), rows.span(), pool), "2 vs 3");
}

}  // namespace
}  // namespace headwise
