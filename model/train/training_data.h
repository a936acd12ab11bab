// TrainingData: a text's tokens, split into training and validation, and cut into batches in a
// reproducible order.
//
// The last validation_fraction of the tokens is the validation split. Training sequences are the
// consecutive windows of sequence_length tokens (each predicts its next token, so a window reads
// one token more); every epoch visits each window once, in an order drawn from (seed, epoch).
// Sequence i of the run is a function of (seed, i) alone, whatever the number of ranks,
// micro-batches or restarts. With a document separator, attention and positions restart after it,
// and the token after a separator is not predicted from it.
#ifndef HEADWISE_MODEL_TRAIN_TRAINING_DATA_H_
#define HEADWISE_MODEL_TRAIN_TRAINING_DATA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/token_file.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"

namespace headwise {

class TrainingData {
 public:
  // Reads data.path as data.format. Errors: a missing or empty file, a token outside [0,
  // vocab_size) (names its index), or splits too short for one sequence (names how many tokens are
  // needed).
  static absl::StatusOr<TrainingData> Load(const DataConfig& data, std::int64_t vocab_size,
                                           std::int64_t sequence_length);
  // Training sequences [first, first + count) of the run, end to end.
  TokenBatch TrainingBatch(std::uint64_t seed, std::int64_t first, std::int64_t count) const;
  // Validation windows [first, first + count) in file order; first + count <= validation_windows()
  // (checked).
  TokenBatch ValidationBatch(std::int64_t first, std::int64_t count) const;

  std::int64_t training_tokens() const { return split_; }
  std::int64_t validation_tokens() const { return tokens_.size() - split_; }
  std::int64_t training_windows() const { return (split_ - 1) / sequence_length_; }
  std::int64_t validation_windows() const { return (validation_tokens() - 1) / sequence_length_; }

  // The text's identity: "N tokens, fnv1a64 of the first and last 2^20 of them".
  std::string Fingerprint() const;

  // Entropy of a token given the one before it, over the text's first 2^24 tokens, in bits per
  // token: what a bigram model that has seen them would reach. A yardstick for validation losses.
  double BigramEntropy() const;

 private:
  TrainingData(TokenFile tokens, std::int64_t split, std::int64_t sequence_length,
               std::int64_t separator);

  TokenFile tokens_;
  std::int64_t split_ = 0;  // first validation token
  std::int64_t sequence_length_ = 0;
  std::int64_t separator_ = -1;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_TRAINING_DATA_H_
