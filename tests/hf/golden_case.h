// GoldenCase: a folder of tests/golden/data: a small model of another family and what transformers
// computes with it (tests/golden/README.md). For tests.
//
//   const GoldenCase golden = OpenGolden("qwen3");
//   auto decoder = golden.NewDecoder({.gemm = GemmBackend::kContract});
//   ExpectClose(Logits(*decoder, golden.documents[0], pool), golden.logits[0]);
#ifndef HEADWISE_TESTS_HF_GOLDEN_CASE_H_
#define HEADWISE_TESTS_HF_GOLDEN_CASE_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"
#include "model/hf/hf_folder.h"

namespace headwise {

using GoldenTokens = std::vector<std::int32_t>;

// Their bound, per tensor: ||a - b|| / ||b||.
inline constexpr double kGoldenBound = 1e-5;

struct GoldenCase {
  HfFolder folder;
  std::vector<GoldenTokens> documents;
  std::vector<std::vector<double>> logits;  // of each document, [T, V]
  double loss = 0;                          // mean over `targets` tokens
  std::int64_t targets = 0;
  std::map<std::string, std::vector<double>> gradients;  // of loss, by their names

  // A decoder of the folder's model with its weights. Fails the process on an error.
  std::unique_ptr<Decoder> NewDecoder(const DecoderOptions& options) const;
  // The same weights under another configuration: parameters that both have are the folder's, others
  // are left at zero.
  std::unique_ptr<Decoder> NewDecoder(const ModelConfig& model,
                                      const DecoderOptions& options) const;
  // All documents as one training batch.
  TokenBatch Batch() const;
};

// Families with logits, loss and gradients.
const std::vector<std::string>& GoldenFamilies();

// Fails the process if there is no such folder.
GoldenCase OpenGolden(const std::string& name);
std::string GoldenDirectory(const std::string& name);

// Transformed logits of every position, [T, V], the tokens fed in these chunks.
std::vector<float> Logits(Decoder& decoder, const GoldenTokens& tokens,
                          const std::vector<std::int64_t>& chunks, ThreadPool& pool);
// One token at a time.
std::vector<float> Logits(Decoder& decoder, const GoldenTokens& tokens, ThreadPool& pool);

// The decoder's gradients as the folder's tensors, by their names.
std::map<std::string, std::vector<double>> GradientsAsTheirs(const HfFolder& folder,
                                                             Decoder& decoder);

// ||a - b|| / ||b||; infinite if the sizes differ.
template <typename A>
double GoldenDistance(const std::vector<A>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : (difference > 0 ? HUGE_VAL : 0);
}

}  // namespace headwise

#endif  // HEADWISE_TESTS_HF_GOLDEN_CASE_H_
