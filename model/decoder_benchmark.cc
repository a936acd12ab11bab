// One forward and backward pass of muse_17m on 16 sequences of 512 tokens, against the machine's
// matrix-product rate.
//
//   bazel run -c opt //model:decoder_benchmark
//
// The rate is that of a 2048 x 2048 x 2048 product by the same backend and threads, measured in the
// same run, before and after the passes; the FLOPs are the model's (model/counts.h), without
// recomputation. Counters: tokens/s, GFLOP/s of the model, share_of_gemm, page faults per pass, and
// the peak resident memory of the process.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/base/check.h"
#include "core/parallel/layout_checker.h"
#include "kernels/gemm/gemm.h"
#include "model/counts.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "model/sharding.h"
#include "model/standard_layout.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

constexpr std::int64_t kSequences = 16;
constexpr std::int64_t kLength = 512;

// FLOP/s of a square product.
template <typename T>
double GemmRate(ThreadPool& pool) {
  constexpr std::int64_t n = 2048;
  constexpr int kRepeats = 3;
  const Tensor x = Tensor::Zeros({n, n}, kDType<T>, Device::kCpu);
  const Tensor w = Tensor::Zeros({n, n}, kDType<T>, Device::kCpu);
  const Tensor y = Tensor::Zeros({n, n}, kDType<T>, Device::kCpu);
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    LinearForward<T, T>(GemmBackend::kOneDnn, x.Rows<T>(), w.Rows<T>(), {}, y.Rows<T>(), pool);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return 2.0 * n * n * n / best;
}

rusage Usage() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

template <typename T>
void BM_ForwardBackward(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const ModelConfig config = LoadPreset("muse_17m")->model();
  auto decoder = Decoder::Create(config, {.compute = kDType<T>});
  HW_CHECK(decoder.ok()) << decoder.status();
  (*decoder)->Initialize(1);
  const TokenBatch batch =
      RandomBatch(std::vector<std::int64_t>(kSequences, kLength), config.vocab_size());
  const double tokens = kSequences * kLength;
  (*decoder)->ForwardBackward(batch, 1 / tokens, pool);  // warms the caches and the storage pool
  double gemm = GemmRate<T>(pool);
  const auto faults = Usage().ru_minflt;
  for (auto _ : state) {
    benchmark::DoNotOptimize((*decoder)->ForwardBackward(batch, 1 / tokens, pool));
  }
  state.counters["page_faults"] =
      static_cast<double>(Usage().ru_minflt - faults) / static_cast<double>(state.iterations());
  gemm = std::max(gemm, GemmRate<T>(pool));
  const auto passes = static_cast<double>(state.iterations());
  const double flops = passes * tokens * TrainingFlopsPerToken(config, kLength);
  state.counters["tokens/s"] = benchmark::Counter(passes * tokens, benchmark::Counter::kIsRate);
  state.counters["model_GFLOP/s"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsRate);
  state.counters["gemm_GFLOP/s"] = gemm / 1e9;
  state.counters["share_of_gemm"] = benchmark::Counter(flops / gemm, benchmark::Counter::kIsRate);
  state.counters["peak_MiB"] = static_cast<double>(Usage().ru_maxrss) / 1024;
}
// Wall time: the work is on the pool's threads.
BENCHMARK_TEMPLATE(BM_ForwardBackward, float)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(BM_ForwardBackward, BFloat16)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// muse_demo's pass without layouts and with them, on a mesh of one rank, in turns: what deriving
// them costs. ratio: of the two medians; spread: of the passes without, (third - first quartile) /
// median.
void BM_Layouts(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const ModelConfig config = LoadPreset("muse_demo")->model();
  constexpr std::int64_t kTokens = 8 * 256;
  const ShardedLayout layout = *StandardLayout(config, Mesh(), {});
  LayoutChecker checker(layout.mesh, layout.plan);
  Sharding sharding(checker);
  sharding.SetTokens(1, kTokens);
  std::vector<std::unique_ptr<Decoder>> decoders;
  for (Sharding* layouts : {static_cast<Sharding*>(nullptr), &sharding}) {
    DecoderOptions options;
    options.sharding = layouts;
    decoders.push_back(*Decoder::Create(config, options));
    decoders.back()->Initialize(1);
  }
  const TokenBatch batch = RandomBatch(std::vector<std::int64_t>(8, 256), config.vocab_size());
  std::vector<double> seconds[2];
  std::size_t next = 0;
  for (auto _ : state) {
    // Which of the two begins changes from turn to turn.
    for (const std::size_t which : {next % 2, 1 - next % 2}) {
      const auto begin = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(decoders[which]->ForwardBackward(batch, 1.0 / kTokens, pool));
      seconds[which].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    ++next;
  }
  HW_CHECK(checker.status().ok()) << checker.status();
  const auto quantile = [&](int which, double at) {
    std::sort(seconds[which].begin(), seconds[which].end());
    return seconds[which]
                  [static_cast<std::size_t>(at * static_cast<double>(seconds[which].size() - 1))];
  };
  state.counters["ratio"] = quantile(1, 0.5) / quantile(0, 0.5);
  state.counters["spread"] = (quantile(0, 0.75) - quantile(0, 0.25)) / quantile(0, 0.5);
}
BENCHMARK(BM_Layouts)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond)->MinTime(10);

}  // namespace
}  // namespace headwise
