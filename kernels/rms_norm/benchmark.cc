// Bytes moved per second, forward and backward, beside a copy of as many bytes.
//
//   bazel run //kernels/rms_norm:benchmark
//
// Forward reads x and writes y; backward reads x and dy and writes dx (a row is read twice, the
// second time from cache). Arguments: threads.
#include "benchmark/benchmark.h"

#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/rms_norm/rms_norm.h"

namespace headwise {
namespace {

constexpr std::int64_t kTokens = 16384, kWidth = 1024;

template <typename T>
struct Buffers {
  Buffers()
      : x(kTokens * kWidth, Narrow<T>(0.5f)), dy(x), y(x), weight(kWidth, 1.0f), dweight(kWidth) {}
  RowSpan<const T> in(const std::vector<T>& v) { return {v.data(), kTokens, kWidth}; }
  RowSpan<T> out(std::vector<T>& v) { return {v.data(), kTokens, kWidth}; }
  std::vector<T> x, dy, y;
  std::vector<float> weight, dweight;
};

template <typename T>
void BM_Forward(benchmark::State& state) {
  Buffers<T> b;
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) RmsNormForward<T>(RmsNorm{}, b.in(b.x), b.weight, b.out(b.y), pool);
  state.SetBytesProcessed(state.iterations() * 2 * kTokens * kWidth * sizeof(T));
}
BENCHMARK_TEMPLATE(BM_Forward, float)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_TEMPLATE(BM_Forward, BFloat16)->Arg(1)->Arg(2)->UseRealTime();

template <typename T>
void BM_Backward(benchmark::State& state) {
  Buffers<T> b;
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    RmsNormBackward<T>(RmsNorm{}, b.in(b.x), b.weight, b.in(b.dy), b.out(b.y),
                       absl::MakeSpan(b.dweight), pool);
  }
  state.SetBytesProcessed(state.iterations() * 3 * kTokens * kWidth * sizeof(T));
}
BENCHMARK_TEMPLATE(BM_Backward, float)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_TEMPLATE(BM_Backward, BFloat16)->Arg(1)->Arg(2)->UseRealTime();

void BM_Copy(benchmark::State& state) {
  Buffers<float> b;
  for (auto _ : state) {
    std::memcpy(b.y.data(), b.x.data(), b.x.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * kTokens * kWidth * sizeof(float));
}
BENCHMARK(BM_Copy)->UseRealTime();

}  // namespace
}  // namespace headwise
