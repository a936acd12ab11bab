#include "model/test_decoder.h"

#include <cmath>

#include "core/base/check.h"
#include "model/random.h"

namespace headwise {
namespace {

template <typename T>
void DrawValues(const Parameter& parameter, std::uint64_t key) {
  T* x = parameter.value.data<T>();
  const bool matrix = parameter.value.rank() >= 2;
  const double std = matrix ? 1.0 / std::sqrt(static_cast<double>(parameter.value.dim(-1))) : 0.3;
  for (std::int64_t i = 0; i < parameter.value.size(); ++i) {
    // What Initialize() left is the centre of vectors: 1 for plain norm weights, else 0.
    const double centre = matrix ? 0 : static_cast<double>(x[i]);
    x[i] = static_cast<T>(static_cast<float>(centre + std * Normal(key, i)));
  }
}

}  // namespace

std::unique_ptr<Decoder> RandomDecoder(const ModelConfig& config, const DecoderOptions& options,
                                       std::uint64_t seed) {
  auto decoder = Decoder::Create(config, options);
  HW_CHECK(decoder.ok()) << decoder.status();
  (*decoder)->Initialize(seed);
  for (const Parameter* parameter : (*decoder)->parameters()) {
    const std::uint64_t key = RandomKey(seed, parameter->name);
    if (parameter->value.dtype() == DType::kF64) {
      DrawValues<double>(*parameter, key);
    } else {
      DrawValues<float>(*parameter, key);
    }
  }
  ThreadPool pool(1);
  (*decoder)->WeightsChanged(pool);
  return *std::move(decoder);
}

TokenBatch RandomBatch(const std::vector<std::int64_t>& document_lengths, std::int64_t vocab_size,
                       std::uint64_t seed) {
  TokenBatch batch;
  const auto token = [&](std::size_t i) {
    return static_cast<std::int32_t>(Uniform(seed, i) * static_cast<double>(vocab_size));
  };
  for (const std::int64_t length : document_lengths) {
    const auto begin = static_cast<std::int64_t>(batch.inputs.size());
    for (std::int64_t i = 0; i < length; ++i) {
      batch.inputs.push_back(token(batch.inputs.size()));
      batch.targets.push_back(token(batch.targets.size() + 1));
      batch.positions.push_back(i);
    }
    batch.segments.push_back({.query_begin = begin,
                              .num_queries = length,
                              .query_position = 0,
                              .key_begin = begin,
                              .num_keys = length,
                              .key_position = 0});
  }
  if (batch.targets.size() > 2) batch.targets[1] = kIgnoredTarget;
  return batch;
}

TokenBatch OneDocument(const TokenBatch& batch, std::size_t index) {
  AttentionSegment segment = batch.segments[index];
  const auto begin = static_cast<std::size_t>(segment.query_begin);
  const auto end = begin + static_cast<std::size_t>(segment.num_queries);
  segment.query_begin = segment.key_begin = 0;
  return {.inputs = {batch.inputs.begin() + begin, batch.inputs.begin() + end},
          .targets = {batch.targets.begin() + begin, batch.targets.begin() + end},
          .positions = {batch.positions.begin() + begin, batch.positions.begin() + end},
          .segments = {segment}};
}

TokenBatch OnlyTarget(const TokenBatch& batch, std::int64_t token) {
  TokenBatch only = batch;
  for (std::size_t t = 0; t < only.targets.size(); ++t) {
    if (static_cast<std::int64_t>(t) != token) only.targets[t] = kIgnoredTarget;
  }
  return only;
}

std::vector<double> GradientOf(const Parameter& parameter) {
  std::vector<double> gradient;
  for (std::int64_t i = 0; i < parameter.gradient.size(); ++i) {
    gradient.push_back(parameter.gradient.dtype() == DType::kF64
                           ? parameter.gradient.data<double>()[i]
                           : static_cast<double>(parameter.gradient.data<float>()[i]));
  }
  return gradient;
}

double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  HW_CHECK_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<std::string> GradientBits(Decoder& decoder) {
  std::vector<std::string> bits;
  for (const Parameter* parameter : decoder.parameters()) {
    bits.emplace_back(static_cast<const char*>(parameter->gradient.raw_data()),
                      static_cast<std::size_t>(parameter->gradient.bytes()));
  }
  return bits;
}

}  // namespace headwise
