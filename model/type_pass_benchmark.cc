// The whole check of muse_spark at its native size over 1024 and 4096 ranks: 62 layers, forward,
// backward and gradient plan, for every kind of rank.
//
//   bazel run -c opt //model:type_pass_benchmark
//
// One iteration is what a program does that is asked once: the standard plan, the checker, the pass
// and its results. Counters: layers per second, boundaries crossed, entries of the plan asked for,
// kinds of ranks, and the peak resident memory of the process. The goal is a second and 200 MiB.
#include <cstdint>
#include <string>

#include "benchmark/benchmark.h"
#include "core/base/check.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/mesh.h"
#include "model/presets/presets.h"
#include "model/report/progress.h"
#include "model/standard_layout.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

void BM_TypePass(benchmark::State& state, const std::string& mesh_text, bool sequence_parallel) {
  const ModelConfig config = LoadPreset("muse_spark")->model();
  const auto mesh = Mesh::Parse(mesh_text);
  HW_CHECK(mesh.ok()) << mesh.status();
  std::int64_t crossings = 0, consulted = 0, kinds = 0;
  for (auto _ : state) {
    const auto layout = StandardLayout(config, *mesh, {.sequence_parallel = sequence_parallel});
    HW_CHECK(layout.ok()) << layout.status();
    LayoutChecker checker(layout->mesh, layout->plan);
    const auto report = TypePass(config, {}, checker);
    HW_CHECK(report.ok() && checker.status().ok()) << report.status() << checker.status();
    const auto ranks = RankKinds(checker);
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      LayoutChecker other(layout->mesh, layout->plan);
      HW_CHECK(TypePass(config, {.rank = ranks[i]}, other).ok() && other.status().ok());
    }
    kinds = static_cast<std::int64_t>(ranks.size());
    crossings = static_cast<std::int64_t>(checker.crossings().size());
    consulted = static_cast<std::int64_t>(checker.consulted().size());
  }
  state.counters["layers/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * config.num_layers()), benchmark::Counter::kIsRate);
  state.counters["crossings"] = static_cast<double>(crossings);
  state.counters["consulted"] = static_cast<double>(consulted);
  state.counters["rank_kinds"] = static_cast<double>(kinds);
  state.counters["peak_MiB"] = static_cast<double>(PeakResidentBytes()) / (1 << 20);
}
BENCHMARK_CAPTURE(BM_TypePass, dp16_cp4_tp16_ep64, "dp=16,cp=4,tp=16,ep=64", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TypePass, dp16_cp4_tp16_ep64_sp, "dp=16,cp=4,tp=16,ep=64", true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TypePass, dp64_cp4_tp16_ep256, "dp=64,cp=4,tp=16,ep=256", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TypePass, dp64_cp4_tp16_ep256_sp, "dp=64,cp=4,tp=16,ep=256", true)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headwise
