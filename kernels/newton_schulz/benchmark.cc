// Newton-Schulz of many blocks on two threads, against the standard form through oneDNN and against
// oneDNN's own GEMM rate. All three take turns within every iteration, so that a busy machine is
// equally busy for each; the counters are of the best turn of each.
//
//   bazel run -c opt //kernels/newton_schulz:benchmark
//
//   speedup   standard form's time / ours
//   GFLOPS    4 d^2 n + 34 d^3 per block (five steps in Gram form, whole products) / our time
//   share     GFLOPS / oneDNN's rate at 1024 x 1024 x 1024
//   bytes/s   the block read once and written once
#include "benchmark/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "core/heads/head_blocks.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/newton_schulz/onednn_standard_form.h"

namespace headwise {
namespace {

constexpr int kThreads = 2;

template <typename F>
double Seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void BM_AgainstOneDnn(benchmark::State& state) {
  const std::int64_t batch = state.range(0), d = state.range(1), n = state.range(2);
  std::vector<float> x(batch * d * n), o(x.size());
  std::uint32_t random = 1;
  for (float& v : x) {
    random = random * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31f;
  }
  const HeadBlocks blocks = *HeadBlocks::Separate(HeadRole::kQuery, batch, d, 1);
  const NewtonSchulzProblem problem = {RowSpan<const float>(x.data(), batch * d, n),
                                       RowSpan<float>(o.data(), batch * d, n), &blocks};
  ThreadPool pool(kThreads);
  newton_schulz::OneDnnStandardForm standard(Quintic5(), batch, d, n, kThreads);
  newton_schulz::OneDnnGemmRate gemm(kThreads);

  double ours = std::numeric_limits<double>::infinity(), theirs = ours, gemm_rate = 0;
  gemm.Measure();  // oneDNN makes its kernels
  for (auto _ : state) {
    for (int i = 0; i < 3; ++i) gemm_rate = std::max(gemm_rate, gemm.Measure());
    const double seconds =
        Seconds([&] { HW_CHECK(NewtonSchulz(Quintic5(), {{problem}}, pool).ok()); });
    state.SetIterationTime(seconds);
    ours = std::min(ours, seconds);
    theirs = std::min(theirs, Seconds([&] { standard.Run(x.data(), o.data()); }));
  }
  const double cost = static_cast<double>(batch * (4 * d * d * n + 34 * d * d * d));
  state.counters["speedup"] = theirs / ours;
  state.counters["GFLOPS"] = cost / ours * 1e-9;
  state.counters["share"] = cost / ours / gemm_rate;
  state.counters["gemm_GFLOPS"] = gemm_rate * 1e-9;
  state.counters["standard_GFLOPS"] = standard.flops() / theirs * 1e-9;
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.size()) * 8);
}
BENCHMARK(BM_AgainstOneDnn)
    ->ArgNames({"blocks", "d", "n"})
    ->Args({160, 64, 8192})
    ->Args({48, 128, 4096})
    ->Args({160, 64, 512})
    ->Args({18, 512, 1408})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headwise
