#include "model/bench/traffic.h"

#include <algorithm>

#include "model/config.h"
#include "model/counts.h"

namespace headwise {
namespace {

// Elements of q and k of all tokens, and of v.
std::int64_t QueriesAndKeys(const QkvTraffic& t) {
  return t.tokens * (t.query_heads + t.kv_heads) * t.head_dim;
}
std::int64_t Values(const QkvTraffic& t) { return t.tokens * t.kv_heads * t.head_dim; }
std::int64_t Packed(const QkvTraffic& t) { return QueriesAndKeys(t) + Values(t); }

}  // namespace

std::int64_t PrepareQkvBytes(const QkvTraffic& t) { return 2 * Packed(t) * t.element; }

std::int64_t PrepareQkvBackwardBytes(const QkvTraffic& t) {
  return (2 * Packed(t) + (t.norm ? QueriesAndKeys(t) : 0)) * t.element;
}

std::int64_t UnfusedQkvBytes(const QkvTraffic& t) {
  const std::int64_t split = 2 * Packed(t) * t.element;
  const std::int64_t norm = t.norm ? QueriesAndKeys(t) * (t.element + t.between) : 0;
  const std::int64_t rope = QueriesAndKeys(t) * ((t.norm ? t.between : t.element) + t.element);
  return split + norm + rope;
}

std::int64_t UnfusedQkvBackwardBytes(const QkvTraffic& t) {
  const std::int64_t split = 2 * QueriesAndKeys(t) * t.element;
  const std::int64_t rope = QueriesAndKeys(t) * (t.element + (t.norm ? t.between : t.element));
  const std::int64_t norm = t.norm ? QueriesAndKeys(t) * (2 * t.element + t.between) : 0;
  const std::int64_t concat = 2 * Packed(t) * t.element;
  return split + rope + norm + concat;
}

std::int64_t VisiblePairs(std::int64_t length, std::int64_t window) {
  const std::int64_t w = window == 0 ? length : std::min(window, length);
  return w * (w + 1) / 2 + (length - w) * w;
}

double PrefillFlops(const ModelConfig& config, std::int64_t tokens) {
  const double head = static_cast<double>(config.vocab_size()) * static_cast<double>(config.dim());
  const double layers = static_cast<double>(CountParameters(config).matmul) - head;
  double flops = 2 * layers * static_cast<double>(tokens) + 2 * head;
  const auto width =
      static_cast<double>(config.attention().num_query_heads() * config.attention().head_dim());
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    flops += 4 * width * static_cast<double>(VisiblePairs(tokens, LayerWindow(config, l)));
  }
  return flops;
}

double DecodeBytes(const ModelConfig& config, std::int64_t rows, std::int64_t context,
                   std::int64_t element) {
  std::int64_t elements = CountParameters(config).matmul;
  const std::int64_t kv_width = config.attention().num_kv_heads() * config.attention().head_dim();
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    const std::int64_t window = LayerWindow(config, l);
    const std::int64_t seen = window == 0 ? context + 1 : std::min(window, context + 1);
    elements += 2 * kv_width * rows * seen;
  }
  return static_cast<double>(elements * element);
}

}  // namespace headwise
