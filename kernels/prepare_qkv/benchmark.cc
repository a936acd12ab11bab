// prepare_qkv at Muse geometry (16 groups of 8 query heads, a key and a value, head_dim 64) against
// the machine's own copies of as many bytes, and against the unfused kernels. All take turns within
// every iteration, so that a busy machine is equally busy for each; the counters are of medians.
//
//   bazel run -c opt //kernels/prepare_qkv:benchmark
//
//   bytes_per_token   read and written: packed, outputs and gradients once each
//   GB/s              those bytes / our time
//   of_memcpy         that rate / memcpy's, counting what memcpy reads and writes
//   of_stream_copy    that rate / a copy's with stores around the caches
//   unfused_ns, ns    per token
//   speedup           unfused time / fused time
#include "benchmark/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/unfused.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace headwise {
namespace {

constexpr std::int64_t kGroups = 16, kGroupSize = 8, kHeads = kGroups * kGroupSize, kDim = 64;
constexpr std::int64_t kSlots = kHeads + 2 * kGroups;
constexpr std::int64_t kTokens = 16384;

// 64-byte aligned, every page touched.
template <typename T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t width)
      : data_(static_cast<T*>(std::aligned_alloc(64, (rows * width * sizeof(T) + 63) / 64 * 64))),
        span_(data_.get(), rows, width) {
    std::uint32_t random = 1;
    for (std::int64_t i = 0; i < rows * width; ++i) {
      random = random * 1664525u + 1013904223u;
      data_.get()[i] = Narrow<T>(static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31f);
    }
  }
  RowSpan<T> span() const { return span_; }
  std::int64_t bytes() const { return span_.size() * sizeof(T); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  RowSpan<T> span_;
};

// One layer and its activations.
template <typename T>
struct Layer {
  explicit Layer(std::int64_t tokens, Rounding rounding = Rounding::kAfterWeight)
      : table(*RotaryTable::Create({.length = tokens, .rotary_dim = kDim})),
        op{.layout = *PackedQkv::Interleaved(
               {.query_heads = kHeads, .kv_heads = kGroups, .head_dim = kDim}),
           .norm = HeadNorm::kGainCentered,
           .rotary = &table,
           .rounding = rounding},
        packed(tokens, kSlots * kDim),
        dpacked(tokens, kSlots * kDim),
        q(tokens, kHeads * kDim),
        k(tokens, kGroups * kDim),
        v(tokens, kGroups * kDim),
        weight(kDim, 0.25f),
        dq_weight(kGroups, kDim),
        dk_weight(kGroups, kDim) {
    for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(t);
  }

  QkvInputs<T> in() const { return {packed.span(), weight, weight, positions}; }
  QkvOutputs<T> out() const { return {q.span(), k.span(), v.span()}; }
  // Gradients in place of the outputs: of the same shape, and a benchmark does not mind.
  QkvGradients<T> d() const { return {q.span(), k.span(), v.span()}; }
  PackedGradients<T> gradients() const {
    return {dpacked.span(), dq_weight.span(), dk_weight.span()};
  }

  RotaryTable table;
  QkvPreparation op;
  Matrix<T> packed, dpacked, q, k, v;
  std::vector<float> weight;
  Matrix<float> dq_weight, dk_weight;
  std::vector<std::int64_t> positions;
};

template <typename F>
double Seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

// copy(to, from, bytes) of the whole matrix in pieces of 64 rows, as the kernel takes them.
template <typename T, typename Copy>
double SecondsOfCopy(const Layer<T>& layer, ThreadPool& pool, Copy copy) {
  const RowSpan<T> from = layer.packed.span(), to = layer.dpacked.span();
  return Seconds([&] {
    pool.ParallelFor((from.rows + 63) / 64, [&](std::int64_t i) {
      const std::int64_t rows = std::min<std::int64_t>(64, from.rows - 64 * i);
      copy(to.row(64 * i), from.row(64 * i), rows * from.width * sizeof(T));
    });
  });
}

void StreamCopy(void* to, const void* from, std::int64_t bytes) {
#if defined(__AVX512F__)
  for (std::int64_t i = 0; i < bytes / 64; ++i) {
    _mm512_stream_si512(static_cast<__m512i*>(to) + i,
                        _mm512_loadu_si512(static_cast<const __m512i*>(from) + i));
  }
  _mm_sfence();
#elif defined(__AVX__)
  for (std::int64_t i = 0; i < bytes / 32; ++i) {
    _mm256_stream_si256(static_cast<__m256i*>(to) + i,
                        _mm256_loadu_si256(static_cast<const __m256i*>(from) + i));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

template <typename T>
void Forward(const Layer<T>& layer, ThreadPool& pool) {
  HW_CHECK(PrepareQkv<T>(layer.op, layer.in(), layer.out(), pool).ok());
}

template <typename T>
void Backward(const Layer<T>& layer, ThreadPool& pool) {
  HW_CHECK(PrepareQkvBackward<T>(layer.op, layer.in(), layer.d(), layer.gradients(), pool).ok());
}

// Bytes that a token must move. Backward does not read v from `packed`.
template <typename T, bool kBackward>
constexpr std::int64_t kBytesPerToken = (kBackward ? 3 * kSlots - kGroups : 2 * kSlots) * kDim *
                                        sizeof(T);
static_assert(kBytesPerToken<BFloat16, false> == 40960);
static_assert(kBytesPerToken<BFloat16, true> == 59392);

template <typename T, bool kBackward>
void BM_AgainstCopies(benchmark::State& state) {
  const Layer<T> layer(kTokens, static_cast<Rounding>(state.range(1)));
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<double> kernel, copy, stream_copy;
  for (auto _ : state) {
    copy.push_back(SecondsOfCopy(layer, pool, std::memcpy));
    kernel.push_back(Seconds([&] { kBackward ? Backward(layer, pool) : Forward(layer, pool); }));
    stream_copy.push_back(SecondsOfCopy(layer, pool, StreamCopy));
    state.SetIterationTime(kernel.back());
  }
  const double bytes = static_cast<double>(kTokens * kBytesPerToken<T, kBackward>);
  const double copied = 2.0 * static_cast<double>(layer.packed.bytes());
  const double rate = bytes / Median(kernel);
  state.counters["bytes_per_token"] = kBytesPerToken<T, kBackward>;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["of_memcpy"] = rate / (copied / Median(copy));
  state.counters["of_stream_copy"] = rate / (copied / Median(stream_copy));
}

// The unfused kernels with their intermediate tensors allocated beforehand.
template <typename T>
struct UnfusedLayer {
  explicit UnfusedLayer(const Layer<T>& layer)
      : layer(layer),
        rows(layer.packed.span().rows),
        q(rows, kHeads * kDim),
        k(rows, kGroups * kDim),
        qn(rows, kHeads * kDim),
        kn(rows, kGroups * kDim) {}

  void Forward(ThreadPool& pool) const {
    const QkvInputs<T> in = layer.in();
    const QkvOutputs<T> out = layer.out();
    SplitQkv<T>(layer.op.layout, in.packed, {q.span(), k.span(), out.v}, pool);
    HeadNormForward<T, T>(norm, kDim, q.span(), in.q_weight, qn.span(), pool);
    HeadNormForward<T, T>(norm, kDim, k.span(), in.k_weight, kn.span(), pool);
    RopeForward<T, T>(&layer.table, in.positions, kDim, qn.span(), out.q, pool);
    RopeForward<T, T>(&layer.table, in.positions, kDim, kn.span(), out.k, pool);
  }

  // After Forward: q and k are what it split.
  void Backward(ThreadPool& pool) const {
    const QkvInputs<T> in = layer.in();
    const QkvGradients<T> d = layer.d();
    const PackedGradients<T> out = layer.gradients();
    RopeBackward<T, T>(&layer.table, in.positions, kDim, d.dq, qn.span(), pool);
    RopeBackward<T, T>(&layer.table, in.positions, kDim, d.dk, kn.span(), pool);
    HeadNormBackward<T, T>(norm, kDim, q.span(), in.q_weight, qn.span(), qn.span(),
                           out.dq_weight_per_group, pool);
    HeadNormBackward<T, T>(norm, kDim, k.span(), in.k_weight, kn.span(), kn.span(),
                           out.dk_weight_per_group, pool);
    ConcatQkvGradient<T>(layer.op.layout, {qn.span(), kn.span(), d.dv}, out.dpacked, pool);
  }

  const Layer<T>& layer;
  std::int64_t rows;
  HeadNormOptions norm = {.norm = HeadNorm::kGainCentered};
  Matrix<T> q, k, qn, kn;
};

template <typename T, bool kBackward>
void BM_AgainstUnfused(benchmark::State& state) {
  constexpr std::int64_t kFewer = kTokens / 4;
  const Layer<T> layer(kFewer);
  const UnfusedLayer<T> unfused(layer);
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<double> fused_times, unfused_times;
  for (auto _ : state) {
    fused_times.push_back(
        Seconds([&] { kBackward ? Backward(layer, pool) : Forward(layer, pool); }));
    unfused_times.push_back(
        Seconds([&] { kBackward ? unfused.Backward(pool) : unfused.Forward(pool); }));
    state.SetIterationTime(fused_times.back());
  }
  state.counters["ns"] = Median(fused_times) * 1e9 / kFewer;
  state.counters["unfused_ns"] = Median(unfused_times) * 1e9 / kFewer;
  state.counters["speedup"] = Median(unfused_times) / Median(fused_times);
}

#define HW_BENCHMARK_COPIES(...)                                          \
  BENCHMARK_TEMPLATE(BM_AgainstCopies, __VA_ARGS__)                       \
      ->ArgNames({"threads", "rounding"})                                 \
      ->ArgsProduct({{1, 2}, {static_cast<int>(Rounding::kAfterWeight)}}) \
      ->UseManualTime()                                                   \
      ->Unit(benchmark::kMillisecond)
HW_BENCHMARK_COPIES(BFloat16, false)->Args({2, static_cast<int>(Rounding::kOnlyAtEnd)});
HW_BENCHMARK_COPIES(BFloat16, true)->Args({2, static_cast<int>(Rounding::kOnlyAtEnd)});
HW_BENCHMARK_COPIES(float, false);
HW_BENCHMARK_COPIES(float, true);

#define HW_BENCHMARK_UNFUSED(...)                    \
  BENCHMARK_TEMPLATE(BM_AgainstUnfused, __VA_ARGS__) \
      ->ArgName("threads")                           \
      ->Arg(2)                                       \
      ->UseManualTime()                              \
      ->Unit(benchmark::kMillisecond)
HW_BENCHMARK_UNFUSED(BFloat16, false);
HW_BENCHMARK_UNFUSED(BFloat16, true);

}  // namespace
}  // namespace headwise
