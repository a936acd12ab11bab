#include "model/train/training_data.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/checksum.h"
#include "model/train/permutation.h"
#include "model/train/token_windows.h"

namespace headwise {

TrainingData::TrainingData(TokenFile tokens, std::int64_t split, std::int64_t sequence_length,
                           std::int64_t separator)
    : tokens_(std::move(tokens)),
      split_(split),
      sequence_length_(sequence_length),
      separator_(separator) {}

absl::StatusOr<TrainingData> TrainingData::Load(const DataConfig& data, std::int64_t vocab_size,
                                                std::int64_t sequence_length) {
  HW_CHECK_GE(sequence_length, 1);
  HW_ASSIGN_OR_RETURN(TokenFile tokens, OpenTokens(data, vocab_size));
  const std::int64_t n = tokens.size();
  const double fraction = data.validation_fraction();
  HW_CHECK(fraction > 0 && fraction < 1) << "validation_fraction " << fraction;
  const std::int64_t split =
      n - static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(n)));
  const std::int64_t needed = sequence_length + 1;
  if (split < needed || n - split < needed) {
    return absl::OutOfRangeError(absl::StrCat(
        data.path(), ": has ", n, " tokens, which makes ", split, " for training and ", n - split,
        " for validation; each split needs at least training.sequence_length + 1 = ", needed,
        "; try a longer text, a shorter sequence or another data.validation_fraction"));
  }
  return TrainingData(std::move(tokens), split, sequence_length, data.document_separator());
}

TokenBatch TrainingData::TrainingBatch(std::uint64_t seed, std::int64_t first,
                                       std::int64_t count) const {
  TokenBatch batch;
  const std::int64_t windows = training_windows();
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::uint64_t epoch_key = MixKeys(seed, static_cast<std::uint64_t>(i / windows));
    const std::uint64_t window = PermutedIndex(epoch_key, windows, i % windows);
    AppendWindow(tokens_, static_cast<std::int64_t>(window) * sequence_length_, sequence_length_,
                 separator_, &batch);
  }
  return batch;
}

TokenBatch TrainingData::ValidationBatch(std::int64_t first, std::int64_t count) const {
  HW_CHECK_LE(first + count, validation_windows());
  TokenBatch batch;
  for (std::int64_t i = first; i < first + count; ++i) {
    AppendWindow(tokens_, split_ + i * sequence_length_, sequence_length_, separator_, &batch);
  }
  return batch;
}

std::string TrainingData::Fingerprint() const {
  const std::int64_t n = tokens_.size(), ends = std::min<std::int64_t>(n, std::int64_t{1} << 20);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(ends));
  Fnv1a64 hash;
  for (const std::int64_t begin : {std::int64_t{0}, n - ends}) {
    tokens_.Copy(begin, absl::MakeSpan(tokens));
    hash.Update(tokens.data(), tokens.size() * sizeof(std::int32_t));
  }
  return absl::StrCat(n, " tokens, ", ChecksumToHex(hash.value()));
}

double TrainingData::BigramEntropy() const {
  const std::int64_t n = std::min<std::int64_t>(tokens_.size(), std::int64_t{1} << 24);
  std::unordered_map<std::int64_t, std::int64_t> pairs;
  std::unordered_map<std::int32_t, std::int64_t> firsts;
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    ++pairs[(std::int64_t{tokens_[i]} << 32) | tokens_[i + 1]];
    ++firsts[tokens_[i]];
  }
  double bits = 0;
  for (const auto& [pair, count] : pairs) {
    const double given = static_cast<double>(firsts[static_cast<std::int32_t>(pair >> 32)]);
    bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / given);
  }
  return n < 2 ? 0 : bits / static_cast<double>(n - 1);
}

}  // namespace headwise
