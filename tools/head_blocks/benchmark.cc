// head_blocks without printing: finding, reading and resolving the headers of a checkpoint of 405
// thousand million parameters in 64 shards.
#include "benchmark/benchmark.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/head_blocks/checkpoint_source.h"
#include "tools/head_blocks/report.h"
#include "tools/head_blocks/testing/sparse_checkpoint.h"

namespace headwise {
namespace {

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

void BM_Llama405BIn64Shards(benchmark::State& state) {
  const std::string directory =
      std::filesystem::temp_directory_path().string() + "/head_blocks_benchmark";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << Llama405BConfig();
  if (absl::Status s = WriteSparseShards(directory, Llama405BWeights(), 64); !s.ok()) Fail(s);
  std::size_t blocks = 0;
  for (auto _ : state) {
    const auto source = FindCheckpointSource("", directory);
    if (!source.ok()) Fail(source.status());
    const auto headers = ReadTensorHeaders(source->weights_path);
    if (!headers.ok()) Fail(headers.status());
    const auto layout = ResolveCheckpoint(*source, *headers, {});
    if (!layout.ok()) Fail(layout.status());
    benchmark::DoNotOptimize(LayoutTable(*layout, {}, false));
    blocks = static_cast<std::size_t>(Summarize(*layout).blocks);
  }
  state.counters["heads"] = static_cast<double>(blocks);
  std::filesystem::remove_all(directory);
}
BENCHMARK(BM_Llama405BIn64Shards)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headwise
