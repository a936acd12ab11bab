// What the emulation costs, on one core: items are CUDA threads, or the operations of threads (32
// for a shuffle of a whole warp). A shuffle or a barrier is one switch of fibers for each thread.
//
//   bazel run //kernels/emulation:benchmark
#include "benchmark/benchmark.h"

#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/testing/benchmark_kernels.h"

namespace headwise {
namespace {

constexpr int kBlocks = 64, kTimes = 64;

void CountItems(benchmark::State& state, std::int64_t per_thread) {
  state.SetItemsProcessed(state.iterations() * kBlocks * state.range(0) * per_thread);
}

void BM_Threads(benchmark::State& state) {
  for (auto _ : state) {
    HW_CHECK(cuda_emulated::RunThreads(kBlocks, static_cast<int>(state.range(0))).ok());
  }
  CountItems(state, 1);
}
BENCHMARK(BM_Threads)->Arg(32)->Arg(128)->Arg(1024);

void BM_Shuffles(benchmark::State& state) {
  for (auto _ : state) {
    HW_CHECK(cuda_emulated::RunShuffles(kBlocks, static_cast<int>(state.range(0)), kTimes).ok());
  }
  CountItems(state, kTimes);
}
BENCHMARK(BM_Shuffles)->Arg(32)->Arg(128)->Arg(1024);

void BM_Barriers(benchmark::State& state) {
  for (auto _ : state) {
    HW_CHECK(cuda_emulated::RunBarriers(kBlocks, static_cast<int>(state.range(0)), kTimes).ok());
  }
  CountItems(state, kTimes);
}
BENCHMARK(BM_Barriers)->Arg(32)->Arg(128)->Arg(1024);

void BM_SharedAccesses(benchmark::State& state) {
  for (auto _ : state) {
    HW_CHECK(cuda_emulated::RunShared(kBlocks, static_cast<int>(state.range(0)), kTimes).ok());
  }
  CountItems(state, 2 * kTimes + 1);
}
BENCHMARK(BM_SharedAccesses)->Arg(128);

void GlobalAccesses(benchmark::State& state, const emulation::Options& options, int regions) {
  std::vector<float> data(kBlocks * state.range(0));
  std::vector<float> others(regions);
  emulation::Session session(options);
  for (int i = 1; i < regions; ++i) {
    session.AddRegion("other" + std::to_string(i), &others[i], sizeof(float),
                      emulation::Access::kRead);
  }
  if (regions > 0) {
    session.AddRegion("data", data.data(), data.size() * sizeof(float),
                      emulation::Access::kReadWrite);
  }
  for (auto _ : state) {
    HW_CHECK(
        cuda_emulated::RunGlobal(kBlocks, static_cast<int>(state.range(0)), kTimes, data.data())
            .ok());
  }
  CountItems(state, 2 * kTimes);
}
void BM_GlobalAccesses(benchmark::State& state) { GlobalAccesses(state, {}, 0); }
BENCHMARK(BM_GlobalAccesses)->Arg(128);
void BM_GlobalAccessesInRegions(benchmark::State& state) { GlobalAccesses(state, {}, 10); }
BENCHMARK(BM_GlobalAccessesInRegions)->Arg(128);
void BM_GlobalAccessesCounted(benchmark::State& state) {
  GlobalAccesses(state, {.count_traffic = true}, 10);
}
BENCHMARK(BM_GlobalAccessesCounted)->Arg(128);

}  // namespace
}  // namespace headwise
