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
//
// What is held where is decided on the host. On Device::kCuda keys and values are in the memory of
// a GPU, and so is, for the time of a pass, all that the pass reads of these decisions
// (model/gpu/extend_memory.h): a captured pass takes what is there at each launch.
#ifndef HEADWISE_MODEL_KV_CACHE_H_
#define HEADWISE_MODEL_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "model/gpu/extend_memory.h"
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
    // On kCuda: the GPU, not owned, and V.
    Gpu* gpu = nullptr;
    std::int64_t vocab_size = 0;
    const void* owner = nullptr;  // the decoder, whose memory a captured pass uses
  };

  // Allocates everything. kResourceExhausted, with figures and before that, if it is more than the
  // GPU has.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const Layout& layout);

  std::int64_t rows() const { return layout_.rows; }
  std::int64_t max_tokens() const { return layout_.max_tokens; }
  // Tokens seen by row r, evicted ones included: the position of its next token.
  std::int64_t length(std::int64_t r) const;
  // Forgets row r, so that another sequence can take its place.
  void ResetRow(std::int64_t r);
  // Keys and values of all layers.
  std::int64_t bytes() const;

  // On kCuda: the captured pass of one token for each row, once there was one; else null.
  const GpuGraph* decode_graph() const { return decode_graph_.get(); }

  // The rest is for Decoder::Extend, which for every pass calls Begin, Append for each layer, and
  // End.

  // New tokens, those of row r at [begin[r], begin[r] + count[r]).
  struct Pass {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> begin;  // [rows]
    std::vector<std::int64_t> count;  // [rows]; 0 <= count <= kExtendChunk
  };
  // Evicts what windows no longer need where the tokens would not fit, and makes their places. On
  // kCuda, enqueues that, waits, and copies what follows to the GPU.
  void Begin(const OpContext& ctx, const Pass& pass);
  // Of the pass, [T] each; in device memory on kCuda.
  absl::Span<const std::int32_t> tokens() const;
  absl::Span<const std::int64_t> positions() const;
  // Appends k, v [T, G*D] to a layer, and returns the segments with which queries at the same rows
  // of q attend to keys() and values(); in device memory on kCuda, where those of rows that got no
  // token are empty.
  absl::Span<const AttentionSegment> Append(const OpContext& ctx, std::int64_t layer,
                                            const Tensor& k, const Tensor& v);
  const Tensor& keys(std::int64_t layer) const {
    return layers_[layer].keys;
  }  // [rows * capacity, G*D]
  const Tensor& values(std::int64_t layer) const { return layers_[layer].values; }  // likewise
  void End();

  // On kCuda.
  const ExtendMemory& memory() const { return *memory_; }
  const void* owner() const { return layout_.owner; }
  GpuGraph* decode_graph() { return decode_graph_.get(); }
  void set_decode_graph(std::unique_ptr<GpuGraph> graph) {
    HW_CHECK(decode_graph_ == nullptr) << "a second graph";
    decode_graph_ = std::move(graph);
  }

 private:
  // Layers with one window: they hold the same tokens at the same places.
  struct Window {
    std::int64_t size = 0;            // 0: all keys are kept
    std::int64_t capacity = 0;        // tokens of a row
    std::vector<std::int64_t> first;  // [rows]: the position of the oldest token held
    std::vector<std::int64_t> held;   // [rows]: tokens held
    // Of the pass: segments of the rows with tokens, and the row of keys() of each token.
    std::vector<AttentionSegment> segments;
    std::vector<std::int64_t> destinations;
  };
  struct Layer {
    Tensor keys, values;
    std::size_t window = 0;
  };

  explicit KvCache(const Layout& layout);
  absl::Status Allocate();
  std::int64_t WindowOf(std::int64_t size);
  // Of windows that evict, with an overlap: what compaction on a GPU moves at a time.
  std::int64_t MostMoved() const;
  // Keeps the last window - 1 tokens of row r.
  void Compact(const OpContext& ctx, std::size_t window, std::int64_t r);
  void Move(const OpContext& ctx, const Tensor& tensor, std::int64_t from, std::int64_t to,
            std::int64_t count) const;

  Layout layout_;
  std::vector<Window> windows_;
  std::vector<Layer> layers_;
  std::vector<std::int64_t> length_;  // [rows]
  // Of the pass.
  Pass pass_;
  std::vector<std::int64_t> positions_;
  // On kCuda.
  Tensor moved_;  // [MostMoved(), G*D]
  std::optional<ExtendMemory> memory_;
  std::unique_ptr<GpuGraph> decode_graph_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_KV_CACHE_H_
