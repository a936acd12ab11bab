// GFLOP/s of the three products at the shapes of muse_17m, both backends, on two threads.
//
//   bazel run -c opt //kernels/gemm:benchmark
//   bazel run -c opt //kernels/gemm:benchmark -- --benchmark_filter='contract.*forward.*T:8192'
//
// `share` is of oneDNN's rate for the same types at 1024 x 1024 x 1024, measured in the same run on
// the same threads.
#include "benchmark/benchmark.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype/dtype.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {
namespace {

constexpr int kThreads = 2;

enum class Which { kForward, kBackwardInput, kBackwardWeight };

template <typename T>
std::vector<T> Values(std::int64_t size) {
  std::vector<T> values(size);
  for (std::int64_t i = 0; i < size; ++i) values[i] = Narrow<T>((i * 37 % 101 - 50) * 0.02f);
  return values;
}

// The operands of one linear layer.
template <typename T>
struct Layer {
  Layer(std::int64_t tokens, std::int64_t out_features, std::int64_t in_features)
      : T_(tokens), N(out_features), K(in_features) {}

  void Run(GemmBackend backend, Which which, ThreadPool& pool) {
    const RowSpan<T> x_rows(x.data(), T_, K), y_rows(y.data(), T_, N), w_rows(w.data(), N, K);
    switch (which) {
      case Which::kForward:
        return LinearForward<T, T>(backend, x_rows, w_rows, {}, y_rows, pool);
      case Which::kBackwardInput:
        return LinearBackwardInput<T, T>(backend, y_rows, w_rows, x_rows, pool);
      case Which::kBackwardWeight:
        return LinearBackwardWeight<T>(backend, y_rows, x_rows, RowSpan<float>(dw.data(), N, K),
                                       pool);
    }
  }
  double flops() const { return 2.0 * T_ * N * K; }

  std::int64_t T_, N, K;
  std::vector<T> x = Values<T>(T_ * K), w = Values<T>(N * K), y = Values<T>(T_ * N);
  std::vector<float> dw = std::vector<float>(N * K);
};

template <typename T>
double CeilingFlops() {
  static const double ceiling = [] {
    ThreadPool pool(kThreads);
    Layer<T> cube(1024, 1024, 1024);
    double best = 0;
    for (int i = 0; i < 30; ++i) {
      const auto start = std::chrono::steady_clock::now();
      cube.Run(GemmBackend::kOneDnn, Which::kForward, pool);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::max(best, cube.flops() / seconds.count());
    }
    return best;
  }();
  return ceiling;
}

template <typename T>
void Run(benchmark::State& state, GemmBackend backend, Which which) {
  const double ceiling = CeilingFlops<T>();
  ThreadPool pool(kThreads);
  Layer<T> layer(state.range(0), state.range(1), state.range(2));
  layer.Run(backend, which, pool);  // oneDNN makes its primitives
  double best = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    layer.Run(backend, which, pool);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, layer.flops() / seconds.count());
  }
  state.counters["GFLOPS"] =
      benchmark::Counter(layer.flops() * 1e-9 * state.iterations(), benchmark::Counter::kIsRate);
  state.counters["best"] = best * 1e-9;
  state.counters["share"] = best / ceiling;
}

template <typename T>
void Register(const std::string& type) {
  struct Size {
    std::int64_t n, k;
  };
  const std::pair<Which, const char*> products[] = {
      {Which::kForward, "forward"}, {Which::kBackwardInput, "dx"}, {Which::kBackwardWeight, "dw"}};
  for (const GemmBackend backend : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    for (const auto& [which, name] : products) {
      auto* b = benchmark::RegisterBenchmark(
          (std::string(Name(backend)) + "/" + type + "/" + name).c_str(),
          [backend, which = which](benchmark::State& s) { Run<T>(s, backend, which); });
      b->ArgNames({"T", "N", "K"})->UseRealTime()->Unit(benchmark::kMicrosecond);
      for (const std::int64_t tokens : {8192, 2048, 16, 1}) {
        if (tokens < 2048 && which != Which::kForward) continue;  // decoding
        for (const Size s : {Size{768, 512}, {512, 512}, {1408, 512}, {512, 1408}, {256, 512}}) {
          b->Args({tokens, s.n, s.k});
        }
      }
    }
  }
}

const bool kRegistered = [] {
  Register<float>("fp32");
  Register<BFloat16>("bf16");
  return true;
}();

}  // namespace
}  // namespace headwise
