#include "benchmark/benchmark.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

void CountIterations(benchmark::State& state) {
  int64_t count = 0;
  for (auto _ : state) benchmark::DoNotOptimize(++count);
  state.SetItemsProcessed(count);
}
BENCHMARK(CountIterations)->Iterations(100);

// Keeps the runs instead of printing them.
class Collect : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) iterations.push_back(run.iterations);
  }
  std::vector<int64_t> iterations;
};

TEST(BenchmarkTest, RunsWhatWasRegistered) {
  Collect collect;
  EXPECT_EQ(benchmark::RunSpecifiedBenchmarks(&collect, "CountIterations"), 1u);
  EXPECT_EQ(collect.iterations, std::vector<int64_t>{100});
}

}  // namespace
}  // namespace headwise
