// traffic: bytes and operations of kernels and units, by formula. Bytes are those that must be
// moved: every operand read once and every result written once, weights of a row's width left out.
//
//   PrepareQkvBytes({.tokens = 1, .query_heads = 128, .kv_heads = 16, .head_dim = 64, .norm = true,
//                    .element = 2});                                                   // 40,960
//
// An implementation may move more (a row read again from the cache, partial sums); its header then
// says so, and its share of a copy's rate cannot reach 1.
//
// Shape letters: T tokens, H query heads, G kv heads, D head_dim, slots = H + 2 G, N width.
#ifndef HEADWISE_MODEL_BENCH_TRAFFIC_H_
#define HEADWISE_MODEL_BENCH_TRAFFIC_H_

#include <cstdint>

#include "core/proto/config.pb.h"

namespace headwise {

struct QkvTraffic {
  std::int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
  bool norm = false;  // of q and k heads
  std::int64_t element = 4;
  // Of the tensors between separate kernels, which kOnlyAtEnd keeps in fp32.
  std::int64_t between = 4;
};

// packed read, q, k and v written: 2 slots D.
std::int64_t PrepareQkvBytes(const QkvTraffic& t);
// dq, dk and dv read, dpacked written; with a norm, packed's q and k read: (3 slots - G) D.
std::int64_t PrepareQkvBackwardBytes(const QkvTraffic& t);
// The same by split, head norm and RoPE one after the other (kernels/prepare_qkv/unfused.h). A layer
// without RoPE copies in its place.
std::int64_t UnfusedQkvBytes(const QkvTraffic& t);
// By split, RoPE, head norm and concatenation; q and k are split from packed again.
std::int64_t UnfusedQkvBackwardBytes(const QkvTraffic& t);

// `matrices` of [rows, width] moved once: 2 of an RMS norm, 3 of an add, 5 of a gate's backward.
constexpr std::int64_t MatrixBytes(std::int64_t matrices, std::int64_t rows, std::int64_t width,
                                   std::int64_t element) {
  return matrices * rows * width * element;
}

// Gradient, weight, m and v read, the last three written; fp32.
constexpr std::int64_t AdamWBytes(std::int64_t elements) { return 28 * elements; }
// Gradient, momentum and weight read, the last two written; fp32. (The CUDA kernels read gradient
// and momentum twice: 28.)
constexpr std::int64_t MuonStepBytes(std::int64_t elements) { return 20 * elements; }

// Logits [T, V] read in fp32, their gradient written, targets and losses.
constexpr std::int64_t CrossEntropyBytes(std::int64_t tokens, std::int64_t vocabulary,
                                         std::int64_t element) {
  return tokens * vocabulary * (4 + element) + tokens * 8;
}

// y [T, N] = x [T, K] W^T, W [N, K].
constexpr std::int64_t LinearBytes(std::int64_t t, std::int64_t n, std::int64_t k,
                                   std::int64_t element) {
  return (t * k + n * k + t * n) * element;
}
constexpr double LinearFlops(std::int64_t t, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(t) * static_cast<double>(n) * static_cast<double>(k);
}

// Pairs of a query and a key that it sees, in a sequence of `length` tokens; window 0: all before.
std::int64_t VisiblePairs(std::int64_t length, std::int64_t window);

// Multiplications and additions of the forward pass of one prompt, of which the last token has
// logits. The config must be valid.
double PrefillFlops(const ModelConfig& config, std::int64_t tokens);

// What one step of decoding must read: the weights that a token multiplies, once (of experts those
// of one token, so with several rows at least this), and the keys and values that each row sees at
// `context` tokens before it. `element` is the size of one in the compute type.
double DecodeBytes(const ModelConfig& config, std::int64_t rows, std::int64_t context,
                   std::int64_t element);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_TRAFFIC_H_
