// Bytes moved per second: forward reads two matrices and writes one, backward reads three and
// writes two. Arguments: threads, clamped.
//
//   bazel run //kernels/swiglu:benchmark
#include "benchmark/benchmark.h"

#include <vector>

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/swiglu/swiglu.h"

namespace headwise {
namespace {

constexpr std::int64_t kTokens = 4096, kWidth = 1408;

template <typename T>
std::vector<T> Values() {
  std::vector<T> v(kTokens * kWidth);
  for (std::size_t i = 0; i < v.size(); ++i) {
    v[i] = Narrow<T>(static_cast<float>(i % 1000) * 0.01f - 5.0f);
  }
  return v;
}
template <typename T>
RowSpan<T> Matrix(std::vector<T>& v) {
  return {v.data(), kTokens, kWidth};
}

template <typename T>
void BM_Forward(benchmark::State& state) {
  std::vector<T> gate = Values<T>(), up = gate, out = gate;
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Swiglu op = {.clamped = state.range(1) != 0};
  for (auto _ : state) SwigluForward<T>(op, Matrix(gate), Matrix(up), Matrix(out), pool);
  state.SetBytesProcessed(state.iterations() * 3 * kTokens * kWidth * sizeof(T));
}
BENCHMARK_TEMPLATE(BM_Forward, float)->Args({1, 0})->Args({2, 0})->Args({2, 1})->UseRealTime();
BENCHMARK_TEMPLATE(BM_Forward, BFloat16)->Args({1, 0})->Args({2, 0})->Args({2, 1})->UseRealTime();

template <typename T>
void BM_Backward(benchmark::State& state) {
  std::vector<T> gate = Values<T>(), up = gate, dout = gate, dgate = gate, dup = gate;
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Swiglu op = {.clamped = state.range(1) != 0};
  for (auto _ : state) {
    SwigluBackward<T>(op, Matrix(gate), Matrix(up), Matrix(dout), Matrix(dgate), Matrix(dup), pool);
  }
  state.SetBytesProcessed(state.iterations() * 5 * kTokens * kWidth * sizeof(T));
}
BENCHMARK_TEMPLATE(BM_Backward, float)->Args({1, 0})->Args({2, 0})->Args({2, 1})->UseRealTime();
BENCHMARK_TEMPLATE(BM_Backward, BFloat16)->Args({1, 0})->Args({2, 0})->Args({2, 1})->UseRealTime();

}  // namespace
}  // namespace headwise
