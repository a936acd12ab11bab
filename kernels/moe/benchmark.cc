// A layer of SwiGLU experts: the router, grouped rows, and the experts' products; on two threads.
//
//   bazel run -c opt //kernels/moe:benchmark
//   bazel run -c opt //kernels/moe:benchmark -- --benchmark_filter='forward.*contract'
//
// `GFLOPS` counts the products of chosen experts only: 6 T k N F forward, twice that backward.
//
//   grouped    what the library does
//   all        every expert on every token, weighted by zero where it was not chosen: what one writes
//              without grouping
//   one        no router and no grouping: one expert on T k rows, what the same FLOPs cost in a plain
//              feed-forward layer
#include "benchmark/benchmark.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"
#include "kernels/swiglu/swiglu.h"

namespace headwise {
namespace {

constexpr int kThreads = 2;
constexpr std::int64_t kWidth = 512, kHidden = 768;  // N, F
constexpr std::int64_t kBatches = 64;

template <typename T>
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t width) : width(width), values(rows * width) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = Narrow<T>(static_cast<float>(i * 37 % 101) * 0.02f - 1.0f);
    }
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width; }
  RowSpan<T> span() { return {values.data(), rows(), width}; }

  std::int64_t width;
  std::vector<T> values;
};

// One layer and the memory that it needs for `rows` rows.
template <typename T>
struct Layer {
  Layer(std::int64_t tokens, std::int64_t num_experts, std::int64_t chosen, std::int64_t rows,
        GemmBackend backend)
      : router({.chosen = chosen}),
        num_experts(num_experts),
        backend(backend),
        x(tokens, kWidth),
        y(tokens, kWidth),
        rows(rows, kWidth),
        outputs(rows, kWidth),
        gate(rows, kHidden),
        up(rows, kHidden),
        hidden(rows, kHidden),
        w1(num_experts * kHidden, kWidth),
        w3(num_experts * kHidden, kWidth),
        w2(num_experts * kWidth, kHidden),
        logits(tokens + kBatches - 1, num_experts),
        weights(tokens, chosen),
        dweights(tokens, chosen),
        experts(tokens, chosen) {
    // Uneven loads, and other ones in every batch: experts have new numbers of rows all the time.
    for (std::int64_t t = 0; t < logits.rows(); ++t) {
      for (std::int64_t e = 0; e < num_experts; ++e) {
        logits.span().row(t)[e] =
            static_cast<float>((t * t * 7919 + e * e * 104729 + t * e) % 1009) * 0.01f +
            static_cast<float>(e) / static_cast<float>(num_experts);
      }
    }
  }

  void Experts(absl::Span<const std::int64_t> offsets, RowSpan<const T> in, RowSpan<T> out,
               ThreadPool& pool) {
    GroupedLinearForward<T, T>(backend, offsets, in, w1.span(), {}, gate.span(), pool);
    GroupedLinearForward<T, T>(backend, offsets, in, w3.span(), {}, up.span(), pool);
    SwigluForward<T>({}, gate.span(), up.span(), hidden.span(), pool);
    GroupedLinearForward<T, T>(backend, offsets, hidden.span(), w2.span(), {}, out, pool);
  }
  RowSpan<const float> NextLogits() { return logits.span().Rows(batch++ % kBatches, x.rows()); }
  void Forward(ThreadPool& pool) {
    RouterForward<float>(router, NextLogits(), {}, experts.span(), weights.span(), pool);
    groups = GroupByExpert(experts.span(), num_experts);
    DispatchForward<T>(groups, x.span(), rows.span(), pool);
    Experts(groups.offsets, rows.span(), outputs.span(), pool);
    CombineForward<T>(groups, weights.span(), outputs.span(), y.span(), pool);
  }
  void Backward(ThreadPool& pool) {
    if (dw1.empty()) {
      dw1.resize(w1.values.size());
      dw3.resize(w3.values.size());
      dw2.resize(w2.values.size());
    }
    const auto like = [](Matrix<T>& w, std::vector<float>& dw) {
      return RowSpan<float>(dw.data(), w.rows(), w.width);
    };
    CombineBackward<T>(groups, weights.span(), outputs.span(), y.span(), outputs_gradient.span(),
                       dweights.span(), pool);
    const absl::Span<const std::int64_t> at = groups.offsets;
    GroupedLinearBackwardWeight<T>(backend, at, outputs_gradient.span(), hidden.span(),
                                   like(w2, dw2), pool);
    GroupedLinearBackwardInput<T, T>(backend, at, outputs_gradient.span(), w2.span(),
                                     hidden_gradient.span(), pool);
    SwigluBackward<T>({}, gate.span(), up.span(), hidden_gradient.span(), gate_gradient.span(),
                      up_gradient.span(), pool);
    GroupedLinearBackwardWeight<T>(backend, at, gate_gradient.span(), rows.span(), like(w1, dw1),
                                   pool);
    GroupedLinearBackwardWeight<T>(backend, at, up_gradient.span(), rows.span(), like(w3, dw3),
                                   pool);
    GroupedLinearBackwardInput<T, T>(backend, at, gate_gradient.span(), w1.span(),
                                     outputs_gradient.span(), pool);
    GroupedLinearBackwardInput<T, T>(backend, at, up_gradient.span(), w3.span(),
                                     rows_gradient.span(), pool);
    DispatchBackward<T>(groups, rows_gradient.span(), y.span(), pool);
  }

  Router router;
  std::int64_t num_experts;
  GemmBackend backend;
  std::int64_t batch = 0;
  ExpertGroups groups;
  Matrix<T> x, y, rows, outputs, gate, up, hidden, w1, w3, w2;
  Matrix<float> logits, weights, dweights;
  struct Choices {
    Choices(std::int64_t tokens, std::int64_t chosen) : chosen(chosen), values(tokens * chosen) {}
    RowSpan<std::int32_t> span() {
      return {values.data(), static_cast<std::int64_t>(values.size()) / chosen, chosen};
    }
    std::int64_t chosen;
    std::vector<std::int32_t> values;
  } experts;
  Matrix<T> outputs_gradient = outputs, rows_gradient = rows, hidden_gradient = hidden,
            gate_gradient = gate, up_gradient = up;
  std::vector<float> dw1, dw3, dw2;
};

void CountFlops(benchmark::State& state, std::int64_t rows, double passes) {
  const double flops = passes * 6.0 * static_cast<double>(rows * kWidth * kHidden);
  state.counters["GFLOPS"] = benchmark::Counter(
      flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// Arguments: T, E, k.
template <typename T>
void Grouped(benchmark::State& state, GemmBackend backend, bool backward) {
  const std::int64_t tokens = state.range(0), rows = tokens * state.range(2);
  Layer<T> layer(tokens, state.range(1), state.range(2), rows, backend);
  ThreadPool pool(kThreads);
  layer.Forward(pool);
  if (backward) layer.Backward(pool);
  for (auto _ : state) {
    if (backward) {
      state.PauseTiming();
      layer.Forward(pool);  // other groups
      state.ResumeTiming();
    }
    backward ? layer.Backward(pool) : layer.Forward(pool);
  }
  CountFlops(state, rows, backward ? 2 : 1);
}

template <typename T>
void All(benchmark::State& state, GemmBackend backend) {
  const std::int64_t tokens = state.range(0), num_experts = state.range(1);
  Layer<T> layer(tokens, num_experts, state.range(2), tokens, backend);
  ThreadPool pool(kThreads);
  std::vector<float> share(tokens), sum(tokens * kWidth);
  const auto run = [&] {
    RouterForward<float>(layer.router, layer.NextLogits(), {}, layer.experts.span(),
                         layer.weights.span(), pool);
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (std::int64_t e = 0; e < num_experts; ++e) {
      LinearForward<T, T>(backend, layer.x.span(), layer.w1.span().Rows(e * kHidden, kHidden), {},
                          layer.gate.span(), pool);
      LinearForward<T, T>(backend, layer.x.span(), layer.w3.span().Rows(e * kHidden, kHidden), {},
                          layer.up.span(), pool);
      SwigluForward<T>({}, layer.gate.span(), layer.up.span(), layer.hidden.span(), pool);
      LinearForward<T, T>(backend, layer.hidden.span(), layer.w2.span().Rows(e * kWidth, kWidth),
                          {}, layer.outputs.span(), pool);
      pool.ParallelFor(tokens, [&](std::int64_t t) {
        float weight = 0;
        for (std::int64_t j = 0; j < state.range(2); ++j) {
          if (layer.experts.span().row(t)[j] == e) weight = layer.weights.span().row(t)[j];
        }
        const T* const from = layer.outputs.span().row(t);
        for (std::int64_t n = 0; n < kWidth; ++n) sum[t * kWidth + n] += weight * Widen(from[n]);
      });
    }
    benchmark::DoNotOptimize(sum.data());
  };
  run();
  for (auto _ : state) run();
  CountFlops(state, tokens * state.range(2), 1);
}

template <typename T>
void One(benchmark::State& state, GemmBackend backend) {
  const std::int64_t rows = state.range(0) * state.range(2);
  Layer<T> layer(1, 1, 1, rows, backend);
  ThreadPool pool(kThreads);
  const std::vector<std::int64_t> offsets = {0, rows};
  layer.Experts(offsets, layer.rows.span(), layer.outputs.span(), pool);
  for (auto _ : state) layer.Experts(offsets, layer.rows.span(), layer.outputs.span(), pool);
  CountFlops(state, rows, 1);
}

template <typename T>
void Register(const std::string& type) {
  for (const GemmBackend backend : {GemmBackend::kOneDnn, GemmBackend::kContract}) {
    const auto add = [&](const std::string& name, auto run, bool decode) {
      auto* b = benchmark::RegisterBenchmark(
          absl::StrCat(name, "/", type, "/", Name(backend)).c_str(),
          [backend, run](benchmark::State& state) { run(state, backend); });
      b->ArgNames({"T", "E", "k"})->UseRealTime()->Unit(benchmark::kMillisecond);
      b->Args({1024, 32, 4});
      if (decode) b->Args({1, 32, 4})->Args({16, 32, 4});
    };
    add(
        "forward/grouped", [](auto& s, auto b) { Grouped<T>(s, b, false); }, true);
    add("forward/all", All<T>, true);
    add("forward/one", One<T>, true);
    add(
        "backward/grouped", [](auto& s, auto b) { Grouped<T>(s, b, true); }, false);
  }
}

const bool kRegistered = [] {
  Register<float>("fp32");
  Register<BFloat16>("bf16");
  return true;
}();

}  // namespace
}  // namespace headwise
