// The Muon step on two threads. Its share of arithmetic beside Newton-Schulz alone on the same
// blocks, in turns within every iteration, so that a busy machine is equally busy for both.
//
//   bazel run -c opt //kernels/muon_step:benchmark
//
//   over_newton_schulz  the whole step's time / Newton-Schulz alone (reads u, writes O)
//   GFLOPS              4 d^2 n + 34 d^3 per block / the step's time
//   bytes_per_element   what a step moves at least: g read, m and w read and written. The update is in
//                       addition written and read once, in the scratch of a block.
//   bytes_per_second    those bytes / the step's time
#include "benchmark/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace headwise {
namespace {

constexpr int kThreads = 2;

template <typename F>
double Seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename G>
void BM_MuonStep(benchmark::State& state) {
  const std::int64_t batch = state.range(0), d = state.range(1), n = state.range(2);
  const std::int64_t rows = batch * d, size = rows * n;
  std::vector<G> gradient(size);
  std::vector<float> momentum(size), weight(size), update(size);
  std::uint32_t random = 1;
  for (std::int64_t i = 0; i < size; ++i) {
    random = random * 1664525u + 1013904223u;
    const float v = static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31f;
    gradient[i] = Narrow<G>(v);
    momentum[i] = update[i] = v;
  }
  const HeadBlocks blocks = *HeadBlocks::Separate(HeadRole::kQuery, batch, d, 1);
  const MuonWeight<G> step = {.weight = RowSpan<float>(weight.data(), rows, n),
                              .momentum = RowSpan<float>(momentum.data(), rows, n),
                              .gradient = RowSpan<const G>(gradient.data(), rows, n),
                              .blocks = &blocks};
  const NewtonSchulzProblem alone = {RowSpan<const float>(update.data(), rows, n),
                                     RowSpan<float>(update.data(), rows, n), &blocks};
  ThreadPool pool(kThreads);
  double best = std::numeric_limits<double>::infinity(), best_alone = best;
  for (auto _ : state) {
    const double seconds = Seconds([&] { HW_CHECK(MuonStep<G>({}, {{step}}, pool).ok()); });
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    best_alone = std::min(
        best_alone, Seconds([&] { HW_CHECK(NewtonSchulz(Quintic5(), {{alone}}, pool).ok()); }));
  }
  const std::int64_t bytes_per_element = sizeof(G) + 4 * sizeof(float);
  state.counters["over_newton_schulz"] = best / best_alone;
  state.counters["GFLOPS"] =
      static_cast<double>(batch * (4 * d * d * n + 34 * d * d * d)) / best * 1e-9;
  state.counters["bytes_per_element"] = static_cast<double>(bytes_per_element);
  state.SetBytesProcessed(state.iterations() * size * bytes_per_element);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"blocks", "d", "n"})->UseManualTime()->Unit(benchmark::kMillisecond);
  b->Args({160, 64, 8192})->Args({48, 128, 4096})->Args({12, 64, 512})->Args({18, 512, 1408});
}
BENCHMARK_TEMPLATE(BM_MuonStep, float)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_MuonStep, BFloat16)->Apply(Shapes);

}  // namespace
}  // namespace headwise
