#include "model/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "model/gpu/tensors.h"

namespace headwise {

KvCache::KvCache(const Layout& layout)
    : layout_(layout), length_(static_cast<std::size_t>(layout.rows), 0) {
  for (const std::int64_t size : layout.windows) {
    auto same = std::find_if(windows_.begin(), windows_.end(),
                             [&](const Window& window) { return window.size == size; });
    if (same == windows_.end()) {
      Window window;
      window.size = size;
      window.capacity =
          size == 0 ? layout.max_tokens : std::min(layout.max_tokens, size - 1 + kExtendChunk);
      window.first.assign(static_cast<std::size_t>(layout.rows), 0);
      window.held.assign(static_cast<std::size_t>(layout.rows), 0);
      same = windows_.insert(windows_.end(), std::move(window));
    }
    layers_.push_back({.window = static_cast<std::size_t>(same - windows_.begin())});
  }
}

std::int64_t KvCache::MostMoved() const {
  std::int64_t most = 0;
  for (const Window& window : windows_) {
    if (window.capacity < layout_.max_tokens) most = std::max(most, window.size - 1);
  }
  return most;
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const Layout& layout) {
  std::unique_ptr<KvCache> cache(new KvCache(layout));
  HW_RETURN_IF_ERROR(cache->Allocate());
  return cache;
}

absl::Status KvCache::Allocate() {
  const bool on_gpu = layout_.device == Device::kCuda;
  if (on_gpu) {
    const ExtendMemory::Size size = {.tokens = layout_.rows * kExtendChunk,
                                     .rows = layout_.rows,
                                     .windows = static_cast<std::int64_t>(windows_.size()),
                                     .vocab_size = layout_.vocab_size};
    const std::int64_t row = layout_.kv_width * SizeOf(layout_.dtype);
    std::int64_t needed = MostMoved() * row + ExtendMemory::Bytes(size);
    for (const Layer& layer : layers_) {
      needed += 2 * layout_.rows * windows_[layer.window].capacity * row;
    }
    HW_RETURN_IF_ERROR(CheckFreeMemory(
        *layout_.gpu,
        absl::StrCat("a cache of ", layout_.rows, " rows of ", layout_.max_tokens, " tokens"),
        needed));
    moved_ = EmptyOnGpu(*layout_.gpu, {MostMoved(), layout_.kv_width}, layout_.dtype);
    memory_.emplace(*layout_.gpu, size);
  }
  for (Layer& layer : layers_) {
    const Shape shape = {layout_.rows * windows_[layer.window].capacity, layout_.kv_width};
    for (Tensor* tensor : {&layer.keys, &layer.values}) {
      *tensor = on_gpu ? EmptyOnGpu(*layout_.gpu, shape, layout_.dtype)
                       : Tensor::Zeros(shape, layout_.dtype, layout_.device);
    }
  }
  return absl::OkStatus();
}

std::int64_t KvCache::length(std::int64_t r) const {
  HW_CHECK(r >= 0 && r < rows()) << "row " << r << " of " << rows();
  return length_[r];
}

void KvCache::ResetRow(std::int64_t r) {
  HW_CHECK(r >= 0 && r < rows()) << "row " << r << " of " << rows();
  length_[r] = 0;
  for (Window& window : windows_) window.first[r] = window.held[r] = 0;
}

std::int64_t KvCache::bytes() const {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers_) bytes += layer.keys.bytes() + layer.values.bytes();
  return bytes;
}

// A GPU's copy is not for overlapping rows: those go elsewhere first.
void KvCache::Move(const OpContext& ctx, const Tensor& tensor, std::int64_t from, std::int64_t to,
                   std::int64_t count) const {
  if (layout_.device != Device::kCuda || std::abs(from - to) >= count) {
    ops::CopyRows(ctx, tensor, from, tensor, to, count);
    return;
  }
  ops::CopyRows(ctx, tensor, from, moved_, 0, count);
  ops::CopyRows(ctx, moved_, 0, tensor, to, count);
}

void KvCache::Compact(const OpContext& ctx, std::size_t index, std::int64_t r) {
  Window& window = windows_[index];
  HW_CHECK_GT(window.size, 0) << "row " << r << " is full";
  std::int64_t& held = window.held[r];
  // The chunk's first query sees window - 1 tokens before it.
  const std::int64_t kept = std::min(held, window.size - 1);
  const std::int64_t begin = r * window.capacity;
  for (const Layer& layer : layers_) {
    if (layer.window != index) continue;
    for (const Tensor* tensor : {&layer.keys, &layer.values}) {
      Move(ctx, *tensor, begin + held - kept, begin, kept);
    }
  }
  window.first[r] += held - kept;
  held = kept;
}

void KvCache::Begin(const OpContext& ctx, const Pass& pass) {
  pass_ = pass;
  positions_.clear();
  for (std::int64_t r = 0; r < rows(); ++r) {
    HW_CHECK(pass.count[r] <= kExtendChunk &&
             pass.begin[r] == static_cast<std::int64_t>(positions_.size()))
        << "row " << r << " of a pass";
    for (std::int64_t i = 0; i < pass.count[r]; ++i) positions_.push_back(length_[r] + i);
  }
  HW_CHECK_EQ(positions_.size(), pass.tokens.size());
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    Window& window = windows_[w];
    window.segments.clear();
    window.destinations.clear();
    for (std::int64_t r = 0; r < rows(); ++r) {
      const std::int64_t count = pass.count[r];
      if (count == 0) continue;
      if (window.held[r] + count > window.capacity) Compact(ctx, w, r);
      std::int64_t& held = window.held[r];
      HW_CHECK_LE(held + count, window.capacity) << "row " << r << ", window " << window.size;
      const std::int64_t begin = r * window.capacity;
      for (std::int64_t i = 0; i < count; ++i) window.destinations.push_back(begin + held + i);
      held += count;
      window.segments.push_back({.query_begin = pass.begin[r],
                                 .num_queries = count,
                                 .query_position = length_[r],
                                 .key_begin = begin,
                                 .num_keys = held,
                                 .key_position = window.first[r]});
    }
  }
  if (layout_.device != Device::kCuda) return;
  ExtendMemory::Inputs inputs = {.tokens = pass_.tokens, .positions = positions_, .windows = {}};
  for (const Window& window : windows_) {
    inputs.windows.push_back({.segments = window.segments, .destinations = window.destinations});
  }
  const absl::Status uploaded = memory_->Upload(inputs);
  HW_CHECK(uploaded.ok()) << uploaded;
}

absl::Span<const std::int32_t> KvCache::tokens() const {
  return memory_.has_value() ? memory_->tokens() : pass_.tokens;
}
absl::Span<const std::int64_t> KvCache::positions() const {
  return memory_.has_value() ? memory_->positions() : positions_;
}

absl::Span<const AttentionSegment> KvCache::Append(const OpContext& ctx, std::int64_t l,
                                                   const Tensor& k, const Tensor& v) {
  const Layer& layer = layers_[l];
  const Window& window = windows_[layer.window];
  const auto w = static_cast<std::int64_t>(layer.window);
  const absl::Span<const std::int64_t> destinations =
      memory_.has_value() ? memory_->destinations(w) : window.destinations;
  ops::ScatterRows(ctx, k, destinations, layer.keys);
  ops::ScatterRows(ctx, v, destinations, layer.values);
  return memory_.has_value() ? memory_->segments(w) : window.segments;
}

void KvCache::End() {
  for (std::int64_t r = 0; r < rows(); ++r) length_[r] += pass_.count[r];
}

}  // namespace headwise
