// Logits per second, loss and gradient in fp32 and bf16, with and without a soft cap, beside the
// bytes that must move (logits read, gradient written); and the same by the steps of one shard, which
// read the logits three times. Arguments: threads.
//
//   bazel run //kernels/cross_entropy:benchmark
#include "benchmark/benchmark.h"

#include <vector>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/sharded_cross_entropy.h"

namespace headwise {
namespace {

template <typename T>
void Run(benchmark::State& state, const LogitTransform& op) {
  constexpr std::int64_t kTokens = 2048, kVocabulary = 4096;
  std::vector<float> z(kTokens * kVocabulary), losses(kTokens);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = static_cast<float>(i % 1000) * 0.02f - 10.0f;
  std::vector<T> dz(z.size());
  const std::vector<std::int32_t> targets(kTokens, 5);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    CrossEntropy<T>(op, {z.data(), kTokens, kVocabulary}, targets, 1e-3, absl::MakeSpan(losses),
                    {dz.data(), kTokens, kVocabulary}, pool);
  }
  state.SetItemsProcessed(state.iterations() * kTokens * kVocabulary);
  state.SetBytesProcessed(state.iterations() * kTokens * kVocabulary * (sizeof(float) + sizeof(T)));
}

template <typename T>
void BM_Plain(benchmark::State& state) {
  Run<T>(state, {});
}
BENCHMARK_TEMPLATE(BM_Plain, float)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_TEMPLATE(BM_Plain, BFloat16)->Arg(1)->Arg(2)->UseRealTime();

template <typename T>
void BM_SoftCap(benchmark::State& state) {
  Run<T>(state, {.cap = 20.0});
}
BENCHMARK_TEMPLATE(BM_SoftCap, float)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_TEMPLATE(BM_SoftCap, BFloat16)->Arg(1)->Arg(2)->UseRealTime();

template <typename T>
void BM_OneShard(benchmark::State& state) {
  const LogitTransform op = {.cap = static_cast<double>(state.range(1))};
  constexpr std::int64_t kTokens = 2048, kColumns = 4096;
  std::vector<float> data(kTokens * kColumns), maxima(kTokens), sums(kTokens), logits(kTokens);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(i % 1000) * 0.02f - 10.0f;
  }
  const RowSpan<const float> z(data.data(), kTokens, kColumns);
  std::vector<T> dz(data.size());
  const std::vector<std::int32_t> targets(kTokens, 5);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    ShardMaxima<T>(op, z, absl::MakeSpan(maxima), pool);
    ShardSums<T>(op, z, targets, {}, maxima, absl::MakeSpan(sums), absl::MakeSpan(logits), pool);
    ShardGradient<T>(op, z, targets, {}, maxima, sums, 1e-3, {dz.data(), kTokens, kColumns}, pool);
  }
  state.SetItemsProcessed(state.iterations() * kTokens * kColumns);
  state.SetBytesProcessed(state.iterations() * kTokens * kColumns *
                          (3 * sizeof(float) + sizeof(T)));
}
BENCHMARK_TEMPLATE(BM_OneShard, float)->ArgsProduct({{1, 2}, {0, 20}})->UseRealTime();
BENCHMARK_TEMPLATE(BM_OneShard, BFloat16)->ArgsProduct({{1, 2}, {0, 20}})->UseRealTime();

}  // namespace
}  // namespace headwise
