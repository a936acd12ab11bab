// GFLOP/s of attention, forward and backward, and the share of the fp32 matrix product.
//
//   bazel run -c opt //kernels/attention:benchmark
//
// Only visible pairs of query and key count: 4 D flops each forward (scores, weighted sum), 10 D
// backward (scores, dp, dv, dk, dq). `share` is of oneDNN at 1024 x 1024 x 1024 in fp32, measured
// in the same run on the same threads; attention's arithmetic is fp32 in every storage type.
#include "benchmark/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "kernels/attention/attention.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {
namespace {

constexpr int kThreads = 2;

double SecondsOf(auto run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double CeilingFlops() {
  static const double ceiling = [] {
    constexpr std::int64_t n = 1024;
    ThreadPool pool(kThreads);
    std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), c(n * n);
    double best = 1e9;
    for (int i = 0; i < 30; ++i) {
      best = std::min(best, SecondsOf([&] {
                        LinearForward<float, float>(GemmBackend::kOneDnn, {a.data(), n, n},
                                                    {b.data(), n, n}, {}, {c.data(), n, n}, pool);
                      }));
    }
    return 2.0 * n * n * n / best;
  }();
  return ceiling;
}

// `segments` documents of `length` tokens.
template <typename T>
struct Batch {
  Batch(const Attention& op, std::int64_t count, std::int64_t length)
      : op(op),
        tokens(count * length),
        width(op.query_heads * op.head_dim),
        kv_width(op.kv_heads * op.head_dim) {
    for (std::int64_t i = 0; i < count; ++i) {
      segments.push_back({.query_begin = i * length,
                          .num_queries = length,
                          .key_begin = i * length,
                          .num_keys = length});
    }
    for (std::int64_t i = 0; i < length; ++i) {
      pairs += op.window == 0 ? i + 1 : std::min(op.window, i + 1);
    }
    pairs *= count * op.query_heads;
    for (auto* m : {&q, &d_o}) *m = Values(tokens * width);
    for (auto* m : {&k, &v}) *m = Values(tokens * kv_width);
    for (auto* m : {&o, &dq}) m->resize(tokens * width);
    for (auto* m : {&dk, &dv}) m->resize(tokens * kv_width);
    log_sum_exp.resize(tokens * op.query_heads);
  }

  static std::vector<T> Values(std::int64_t size) {
    std::vector<T> values(size);
    for (std::int64_t i = 0; i < size; ++i) values[i] = Narrow<T>((i * 37 % 101 - 50) * 0.02f);
    return values;
  }
  RowSpan<T> Queries(std::vector<T>& m) { return {m.data(), tokens, width}; }
  RowSpan<T> Keys(std::vector<T>& m) { return {m.data(), tokens, kv_width}; }
  RowSpan<float> Sums() { return {log_sum_exp.data(), tokens, op.query_heads}; }

  void Forward(ThreadPool& pool) {
    AttentionForward<T>(op, segments, Queries(q), Keys(k), Keys(v), {}, Queries(o), Sums(), pool);
  }
  void Backward(ThreadPool& pool) {
    AttentionBackward<T>(op, segments, Queries(q), Keys(k), Keys(v), {}, Queries(o), Sums(),
                         Queries(d_o), Queries(dq), Keys(dk), Keys(dv), {}, pool);
  }

  Attention op;
  std::int64_t tokens, width, kv_width;
  std::vector<AttentionSegment> segments;
  double pairs = 0;
  std::vector<T> q, k, v, d_o, o, dq, dk, dv;
  std::vector<float> log_sum_exp;
};

template <typename T>
void Run(benchmark::State& state, bool backward) {
  const double ceiling = CeilingFlops();
  const std::int64_t dim = state.range(4);
  const Attention op = {.query_heads = state.range(2),
                        .kv_heads = state.range(3),
                        .head_dim = dim,
                        .scale = 1 / std::sqrt(static_cast<double>(dim)),
                        .window = state.range(5)};
  Batch<T> batch(op, state.range(0), state.range(1));
  ThreadPool pool(kThreads);
  batch.Forward(pool);
  const double flops = (backward ? 10.0 : 4.0) * dim * batch.pairs;
  double best = 1e9;
  for (auto _ : state) {
    best =
        std::min(best, SecondsOf([&] { backward ? batch.Backward(pool) : batch.Forward(pool); }));
  }
  state.counters["GFLOPS"] =
      benchmark::Counter(flops * 1e-9 * state.iterations(), benchmark::Counter::kIsRate);
  state.counters["best"] = flops * 1e-9 / best;
  state.counters["share"] = flops / best / ceiling;
}

template <typename T>
void Register(const std::string& type) {
  for (const bool backward : {false, true}) {
    auto* b = benchmark::RegisterBenchmark(
        ((backward ? "backward/" : "forward/") + type).c_str(),
        [backward](benchmark::State& state) { Run<T>(state, backward); });
    b->ArgNames({"segments", "T", "H", "G", "D", "window"});
    b->UseRealTime()->Unit(benchmark::kMillisecond);
    b->Args({16, 512, 8, 2, 64, 0});
    b->Args({16, 512, 8, 8, 64, 0});
    b->Args({16, 512, 8, 2, 64, 128});
    b->Args({4, 512, 8, 2, 128, 0});
    b->Args({1, 2048, 8, 1, 64, 0});
  }
}

const bool kRegistered = [] {
  Register<float>("fp32");
  Register<BFloat16>("bf16");
  return true;
}();

}  // namespace
}  // namespace headwise
