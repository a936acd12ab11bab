// KvCache: the keys and values of the tokens seen so far, per layer, for a batch of rows that may
// differ in length.
//
//   auto cache = *decoder->NewCache(/*rows=*/2, /*max_tokens=*/4096);
//   Tensor logits = decoder->Extend(*cache, {prompt_a, prompt_b}, pool);   // prefill
//   logits = decoder->Extend(*cache, {{next_a}, {next_b}}, pool);          // decode
//   cache->length(0);                                                      // prompt_a.size() + 1
//
// Made by Decoder::NewCache and written by Decoder::Extend only. A layer with a sliding window of w
// holds at most w - 1 + kExtendChunk tokens of a row: when a chunk does not fit, the last w - 1
// move to the front (compaction) and the older ones are gone. Attention gives the same bits with
// and without the keys that the mask hides, so eviction changes nothing.
#ifndef HEADWISE_MODEL_KV_CACHE_H_
#define HEADWISE_MODEL_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "model/ops.h"

namespace headwise {

// Extend works on at most this many tokens of a row at a time, which bounds its activations and the
// windowed layers' slack.
inline constexpr std::int64_t kExtendChunk = 256;

class KvCache {
 public:
  struct Layout {
    std::int64_t rows = 0;
    std::int64_t max_tokens = 0;  // per row
    std::int64_t kv_width = 0;    // G * D
    DType dtype = DType::kF32;
    Device device = Device::kCpu;
    std::vector<std::int64_t> windows;  // per layer; 0: all keys are kept
  };

  // Allocates everything.
  explicit KvCache(const Layout& layout);

  std::int64_t rows() const { return layout_.rows; }
  std::int64_t max_tokens() const { return layout_.max_tokens; }
  // Tokens seen by row r, evicted ones included: the position of its next token.
  std::int64_t length(std::int64_t r) const;
  // Forgets row r, so that another sequence can take its place.
  void ResetRow(std::int64_t r);
  // Keys and values of all layers.
  std::int64_t bytes() const;

  // The rest is for Decoder::Extend.

  // New tokens of a pass: token i of row r is row `begin[r] + i` of the pass's k and v.
  struct Pass {
    std::vector<std::int64_t> begin;  // [rows]
    std::vector<std::int64_t> count;  // [rows]; 0 <= count <= kExtendChunk
  };
  // Appends k, v [T, G*D] to a layer, evicting what its window no longer needs, and returns the
  // segments with which queries at the same rows of q attend to keys() and values(). Advance() ends
  // the pass after the last layer.
  std::vector<AttentionSegment> Append(const OpContext& ctx, std::int64_t layer, const Pass& pass,
                                       const Tensor& k, const Tensor& v);
  const Tensor& keys(std::int64_t layer) const {
    return layers_[layer].keys;
  }  // [rows * capacity, G*D]
  const Tensor& values(std::int64_t layer) const { return layers_[layer].values; }  // likewise
  void Advance(const Pass& pass);

 private:
  struct Layer {
    Tensor keys, values;
    std::int64_t window = 0;
    std::int64_t capacity = 0;        // tokens of a row
    std::vector<std::int64_t> first;  // [rows]: the position of the oldest token held
    std::vector<std::int64_t> held;   // [rows]: tokens held
  };

  Layout layout_;
  std::vector<Layer> layers_;
  std::vector<std::int64_t> length_;  // [rows]
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_KV_CACHE_H_
