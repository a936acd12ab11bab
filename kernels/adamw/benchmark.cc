// Bytes moved per second: 28 for each element (gradient, weight, m, v read; weight, m, v written).
// Arguments: threads.
//
//   bazel run //kernels/adamw:benchmark
#include "benchmark/benchmark.h"

#include <vector>

#include "absl/types/span.h"
#include "kernels/adamw/adamw.h"
#include "kernels/common/thread_pool.h"

namespace headwise {
namespace {

void BM_Step(benchmark::State& state) {
  constexpr std::int64_t kCount = 1 << 24;
  std::vector<float> weight(kCount, 0.5f), m(kCount), v(kCount), gradient(kCount, 0.01f);
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::int64_t step = 0;
  for (auto _ : state) {
    AdamWStep<float>(AdamWHyperparameters{}, ++step, 1.0, absl::MakeSpan(weight), absl::MakeSpan(m),
                     absl::MakeSpan(v), gradient, pool);
  }
  state.SetBytesProcessed(state.iterations() * kCount * 28);
}
BENCHMARK(BM_Step)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace headwise
