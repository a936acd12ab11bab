// Decoders with non-trivial weights, and batches, for tests.
#ifndef HEADWISE_MODEL_TEST_DECODER_H_
#define HEADWISE_MODEL_TEST_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"

namespace headwise {

// A decoder whose every parameter is drawn at random, norm weights and biases included, so that no
// gradient and no term is trivially zero. The values are floats whatever the dtype, and depend on
// name and seed only. Fails the process on an error.
std::unique_ptr<Decoder> RandomDecoder(const ModelConfig& config, const DecoderOptions& options,
                                       std::uint64_t seed = 1);

// Random documents of the given lengths, one after the other, each predicting its own next tokens
// (the last token's target is random); the target at index 1 is ignored if there are more than two
// tokens.
TokenBatch RandomBatch(const std::vector<std::int64_t>& document_lengths, std::int64_t vocab_size,
                       std::uint64_t seed = 1);

// Document `index` of a batch, alone.
TokenBatch OneDocument(const TokenBatch& batch, std::size_t index);

// The batch with every target ignored but the one at `token`: its loss is then that token's.
TokenBatch OnlyTarget(const TokenBatch& batch, std::int64_t token);

// One parameter's gradient as doubles.
std::vector<double> GradientOf(const Parameter& parameter);

// ||a - b|| / ||b||.
double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b);

// Bytes of every gradient, one string per parameter in order: equal strings mean equal bits.
std::vector<std::string> GradientBits(Decoder& decoder);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TEST_DECODER_H_
