// What our decoder computes is what transformers computes with the same folder: logits, loss and
// every gradient, in small models of all families. Numbers by tests/golden/generate.py.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "model/kv_cache.h"
#include "tests/hf/golden_case.h"

namespace headwise {
namespace {

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  const GoldenCase golden_ = OpenGolden(GetParam());
  ThreadPool pool_{2};
};

TEST_P(GoldenTest, Logits) {
  for (const GemmBackend gemm : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    const auto decoder = golden_.NewDecoder({.gemm = gemm});
    for (std::size_t i = 0; i < golden_.documents.size(); ++i) {
      EXPECT_LE(GoldenDistance(Logits(*decoder, golden_.documents[i], pool_), golden_.logits[i]),
                kGoldenBound)
          << Name(gemm) << ", document " << i;
    }
  }
}

TEST_P(GoldenTest, LossAndGradients) {
  for (const GemmBackend gemm : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    const auto decoder = golden_.NewDecoder({.gemm = gemm});
    const double scale = 1.0 / static_cast<double>(golden_.targets);
    const double loss = decoder->ForwardBackward(golden_.Batch(), scale, pool_) * scale;
    EXPECT_NEAR(loss, golden_.loss, kGoldenBound * golden_.loss) << Name(gemm);
    const auto gradients = GradientsAsTheirs(golden_.folder, *decoder);
    int compared = 0;
    for (const auto& [name, expected] : golden_.gradients) {
      const auto found = gradients.find(name);
      ASSERT_NE(found, gradients.end()) << name;
      EXPECT_LE(GoldenDistance(found->second, expected), kGoldenBound) << Name(gemm) << " " << name;
      ++compared;
    }
    int trained = 0;  // the loss has no gradient for a bias that only chooses
    for (const auto& [name, shape] : golden_.folder.map().tensors()) {
      trained += !absl::EndsWith(name, "e_score_correction_bias");
    }
    EXPECT_EQ(compared, trained);
  }
}

TEST_P(GoldenTest, UnfusedQkvGivesTheSameBits) {
  ModelConfig unfused = golden_.folder.model();
  unfused.mutable_attention()->set_unfused_qkv(true);
  const auto fused = golden_.NewDecoder({});
  const auto other = golden_.NewDecoder(unfused, {});
  const TokenBatch batch = golden_.Batch();
  EXPECT_EQ(fused->ForwardBackward(batch, 1, pool_), other->ForwardBackward(batch, 1, pool_));
  EXPECT_EQ(GradientsAsTheirs(golden_.folder, *fused), GradientsAsTheirs(golden_.folder, *other));
}

// The logits after the last token of each row.
std::vector<float> LastLogits(Decoder& decoder, const std::vector<GoldenTokens>& rows,
                              std::int64_t chunk, ThreadPool& pool) {
  std::int64_t longest = 0;
  for (const GoldenTokens& row : rows) {
    longest = std::max(longest, static_cast<std::int64_t>(row.size()));
  }
  auto cache = *decoder.NewCache(static_cast<std::int64_t>(rows.size()), longest);
  const auto vocab = decoder.config().vocab_size();
  std::vector<float> last(rows.size() * static_cast<std::size_t>(vocab));
  for (std::int64_t seen = 0; seen < longest; seen += chunk) {
    std::vector<GoldenTokens> next;
    for (const GoldenTokens& row : rows) {
      const auto size = static_cast<std::int64_t>(row.size());
      next.emplace_back(row.begin() + std::min(seen, size),
                        row.begin() + std::min(seen + chunk, size));
    }
    const Tensor logits = decoder.Extend(*cache, next, pool);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (next[r].empty()) continue;
      const float* from = logits.data<float>() + static_cast<std::int64_t>(r) * vocab;
      std::copy(from, from + vocab, last.begin() + static_cast<std::int64_t>(r) * vocab);
    }
  }
  return last;
}

TEST_P(GoldenTest, ChunksAndBatchesGiveTheBitsOfAFullForward) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto decoder = golden_.NewDecoder({.compute = compute, .gemm = GemmBackend::kContract});
    std::vector<float> full;
    for (const GoldenTokens& document : golden_.documents) {
      const std::vector<float> last = LastLogits(*decoder, {document}, 1000, pool_);
      full.insert(full.end(), last.begin(), last.end());
    }
    for (const std::int64_t chunk : {1, 3, 7, 1000}) {
      EXPECT_EQ(LastLogits(*decoder, golden_.documents, chunk, pool_), full)
          << Name(compute) << ", chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenTest, testing::ValuesIn(GoldenFamilies()),
                         [](const auto& info) { return info.param; });

// Folders that test reading: logits only.
TEST(GoldenReadingTest, ShardsAndStorageTypes) {
  ThreadPool pool(1);
  for (const char* name : {"llama_sharded", "llama_bf16", "llama_fp16"}) {
    const GoldenCase golden = OpenGolden(name);
    const auto decoder = golden.NewDecoder({});
    EXPECT_LE(GoldenDistance(Logits(*decoder, golden.documents[0], pool), golden.logits[0]),
              kGoldenBound)
        << name;
  }
}

}  // namespace
}  // namespace headwise
