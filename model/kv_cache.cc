#include "model/kv_cache.h"

#include <algorithm>

#include "core/base/check.h"

namespace headwise {

KvCache::KvCache(const Layout& layout)
    : layout_(layout), length_(static_cast<std::size_t>(layout.rows), 0) {
  for (const std::int64_t window : layout.windows) {
    Layer layer;
    layer.window = window;
    layer.capacity =
        window == 0 ? layout.max_tokens : std::min(layout.max_tokens, window - 1 + kExtendChunk);
    const Shape shape = {layout.rows * layer.capacity, layout.kv_width};
    layer.keys = Tensor::Zeros(shape, layout.dtype, layout.device);
    layer.values = Tensor::Zeros(shape, layout.dtype, layout.device);
    layer.first.assign(static_cast<std::size_t>(layout.rows), 0);
    layer.held.assign(static_cast<std::size_t>(layout.rows), 0);
    layers_.push_back(std::move(layer));
  }
}

std::int64_t KvCache::length(std::int64_t r) const {
  HW_CHECK(r >= 0 && r < rows()) << "row " << r << " of " << rows();
  return length_[r];
}

void KvCache::ResetRow(std::int64_t r) {
  HW_CHECK(r >= 0 && r < rows()) << "row " << r << " of " << rows();
  length_[r] = 0;
  for (Layer& layer : layers_) layer.first[r] = layer.held[r] = 0;
}

std::int64_t KvCache::bytes() const {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers_) bytes += layer.keys.bytes() + layer.values.bytes();
  return bytes;
}

std::vector<AttentionSegment> KvCache::Append(const OpContext& ctx, std::int64_t l,
                                              const Pass& pass, const Tensor& k, const Tensor& v) {
  Layer& layer = layers_[l];
  std::vector<AttentionSegment> segments;
  for (std::int64_t r = 0; r < rows(); ++r) {
    const std::int64_t count = pass.count[r];
    if (count == 0) continue;
    const std::int64_t begin = r * layer.capacity;
    std::int64_t& held = layer.held[r];
    if (held + count > layer.capacity) {
      // Compaction. The chunk's first query sees window - 1 tokens before it.
      HW_CHECK_GT(layer.window, 0) << "row " << r << " is full";
      const std::int64_t kept = std::min(held, layer.window - 1);
      ops::CopyRows(ctx, layer.keys, begin + held - kept, layer.keys, begin, kept);
      ops::CopyRows(ctx, layer.values, begin + held - kept, layer.values, begin, kept);
      layer.first[r] += held - kept;
      held = kept;
    }
    HW_CHECK_LE(held + count, layer.capacity) << "row " << r << " of layer " << l;
    ops::CopyRows(ctx, k, pass.begin[r], layer.keys, begin + held, count);
    ops::CopyRows(ctx, v, pass.begin[r], layer.values, begin + held, count);
    held += count;
    segments.push_back({.query_begin = pass.begin[r],
                        .num_queries = count,
                        .query_position = length_[r],
                        .key_begin = begin,
                        .num_keys = held,
                        .key_position = layer.first[r]});
  }
  return segments;
}

void KvCache::Advance(const Pass& pass) {
  for (std::int64_t r = 0; r < rows(); ++r) length_[r] += pass.count[r];
}

}  // namespace headwise
