// What head_blocks reads, on arbitrary bytes: a config.json and a safetensors header together, or an
// index of shards. Whatever comes in: no crash, no over-read, messages fit for a terminal; and what
// is cut into heads is cut exactly.
//
// An input is the configuration, a NUL, and a safetensors file; without a NUL it is an index.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/io/safetensors_header.h"
#include "core/io/safetensors_index.h"
#include "core/io/safetensors_writer.h"
#include "optim/architectures/resolve.h"
#include "optim/architectures/testing/checkpoints.h"
#include "tests/fuzz/fuzz_driver.h"

namespace headwise {
namespace {

long g_indexes = 0;       // accepted
long g_resolved = 0;      // inputs whose both halves parse
long g_blocked = 0;       // weights with head blocks
long g_declined[9] = {};  // by reason

// One line, short enough, printable.
void CheckMessage(absl::string_view message) {
  HW_CHECK(!message.empty());
  HW_CHECK_LE(message.size(), 2000u);
  for (const char c : message) HW_CHECK(c >= ' ' && c <= '~') << static_cast<int>(c);
}

void CheckWeight(const WeightLayout& weight) {
  CheckMessage(weight.explanation);
  HW_CHECK(weight.blocks.has_value() != weight.declined.has_value());
  if (weight.declined.has_value()) {
    ++g_declined[static_cast<int>(*weight.declined)];
    return;
  }
  ++g_blocked;
  HW_CHECK_EQ(weight.shape.size(), 2u);
  const HeadBlocks& blocks = *weight.blocks;
  HW_CHECK_EQ(blocks.axis_size(), weight.shape[blocks.axis() == BlockAxis::kRows ? 0 : 1]);
  std::int64_t next = 0;
  for (const HeadBlock& block : blocks.blocks()) {
    HW_CHECK_EQ(block.ranges.size(), 1u);
    HW_CHECK_EQ(block.ranges[0].begin, next);
    next += block.size();
  }
  HW_CHECK_EQ(next, blocks.axis_size());
  HW_CHECK(blocks.Coarsen(Granularity::kProjection).ok());
  HW_CHECK(blocks.Coarsen(Granularity::kKvGroup).ok());
}

void TestIndex(absl::string_view text) {
  const absl::StatusOr<SafetensorsIndex> index = ParseSafetensorsIndex(text);
  if (!index.ok()) return CheckMessage(index.status().message());
  ++g_indexes;
  for (const std::string& shard : index->shards) {
    HW_CHECK(shard.find('/') == std::string::npos && shard != "..");
  }
}

void TestCheckpointBytes(absl::string_view config, absl::string_view file) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensors(file);
  std::vector<WeightShape> weights;
  if (header.ok()) {
    for (const SafetensorsTensor& tensor : header->tensors) {
      weights.push_back({tensor.name, tensor.shape});
    }
  }
  for (const ResolveOptions& options :
       {ResolveOptions(), ResolveOptions{MlaHeads::kSplit, /*output_columns=*/true}}) {
    const absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(config, weights, options);
    if (!layout.ok()) return CheckMessage(layout.status().message());
    HW_CHECK_EQ(layout->weights.size(), weights.size());
    for (const WeightLayout& weight : layout->weights) CheckWeight(weight);
    if (header.ok()) ++g_resolved;
  }
}

std::string Framed(const std::string& json, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 0xff);
  }
  return file + json + std::string(data_bytes, 'd');
}

// The largest end of any data_offsets, if it is a size for a test.
std::size_t DataBytes(const std::string& json) {
  std::size_t most = 0;
  const std::string key = "data_offsets\":[";
  for (std::size_t at = json.find(key); at != std::string::npos; at = json.find(key, at + 1)) {
    const std::size_t comma = json.find(',', at + key.size());
    if (comma == std::string::npos) break;
    const unsigned long end = std::strtoul(json.c_str() + comma + 1, nullptr, 10);
    if (end < 100'000) most = std::max<std::size_t>(most, end);
  }
  return most;
}

// The checkpoint with one byte an element.
std::string Seed(const TestCheckpoint& checkpoint) {
  std::vector<SafetensorsEntry> entries;
  std::size_t bytes = 0;
  for (const WeightShape& weight : checkpoint.Shapes()) {
    entries.push_back({weight.name, DType::kU8, weight.shape});
    bytes += static_cast<std::size_t>(NumElements(weight.shape));
  }
  return checkpoint.config + '\0' + *SafetensorsHeaderBytes(entries, {}) + std::string(bytes, 'd');
}

}  // namespace

FuzzTarget MakeFuzzTarget() {
  FuzzTarget target;
  Numbers tiny;
  tiny.width = 8;
  tiny.heads = 4;
  tiny.kv_heads = 2;
  tiny.head_dim = 2;
  tiny.nope = tiny.value_dim = 2;
  tiny.rope = 1;
  tiny.q_rank = tiny.kv_rank = 4;
  tiny.linear_key_heads = 1;
  tiny.linear_value_heads = 2;
  tiny.linear_key_dim = tiny.linear_value_dim = 2;
  tiny.vision_heads = tiny.vision_head_dim = 2;
  for (const TestFamily& family : TestFamilies())
    target.seeds.push_back(Seed(Make(family, tiny, "")));
  TestCheckpoint transposed = Make(FindTestFamily("gpt2"), tiny, "");
  transposed.config = R"({"model_type": "gpt_bigcode", "n_embd": 8, "n_head": 4,
                          "multi_query": false})";
  target.seeds.push_back(Seed(transposed));
  target.seeds.push_back(R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  target.seeds.push_back(R"({"metadata": {"total_size": 1}, "weight_map": {"a": "../x"}})");
  target.seeds.push_back(std::string(R"({"model_type": "llama", "x": [NaN, -Infinity]})") + '\0' +
                         Framed("{}", 0));
  target.dictionary = {"0",
                       "1",
                       "-1",
                       "2147483648",
                       "65537",
                       "9223372036854775807",
                       "18446744073709551615",
                       "4294967296",
                       "1e3",
                       "1e99999",
                       "null",
                       "true",
                       "false",
                       "NaN",
                       "\"\"",
                       "[]",
                       "{}",
                       "\\ud800",
                       "\\u0000",
                       "\"model_type\"",
                       "\"llama\"",
                       "\"falcon\"",
                       "\"text_config\"",
                       "\"head_dim\"",
                       "\"layer_types\"",
                       "layers.0.",
                       "self_attn",
                       ".weight"};
  // The size field of the second half says how long its JSON is, and the data are as long as the
  // offsets say.
  target.repair = [](std::string* input) {
    const std::size_t nul = input->find('\0');
    if (nul == std::string::npos) return;
    const std::size_t last = input->rfind("]}}");
    if (last == std::string::npos || last < nul + 9) return;
    const std::string json = input->substr(nul + 9, last + 3 - nul - 9);
    *input = input->substr(0, nul + 1) + Framed(json, DataBytes(json));
  };
  target.finish = [] {
    std::printf("head_blocks_fuzz: %ld indexes, %ld resolved, %ld weights cut, declined:",
                g_indexes, g_resolved, g_blocked);
    for (int reason = 0; reason < 9; ++reason) {
      std::printf(" %ld %s", g_declined[reason], Name(static_cast<DeclineReason>(reason)));
    }
    std::printf("\n");
    std::fflush(stdout);
    for (const long count : g_declined) HW_CHECK_GT(count, 0);
    HW_CHECK_GT(g_indexes, 10);
    HW_CHECK_GT(g_resolved, 1000);
    HW_CHECK_GT(g_blocked, 1000);
  };
  return target;
}

static void TestInput(absl::string_view input) {
  const std::size_t nul = input.find('\0');
  if (nul == absl::string_view::npos) {
    TestIndex(input);
  } else {
    TestCheckpointBytes(input.substr(0, nul), input.substr(nul + 1));
  }
}

}  // namespace headwise

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headwise::TestInput(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
