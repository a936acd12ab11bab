// config.json of a Hugging Face folder, arbitrary text. Whatever comes in: no crash, an error
// message fit for a terminal; and what is accepted is a valid model, which an update leaves byte
// for byte, and which comes back from the configuration that is written for it.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/io/file_system.h"
#include "model/config.h"
#include "model/hf/hf_config.h"
#include "tests/fuzz/fuzz_driver.h"

namespace headwise {
namespace {

long g_accepted = 0, g_rejected = 0, g_not_json = 0;

// An error message goes to a terminal and a log: short, one line, printable.
void CheckMessage(absl::string_view message) {
  HW_CHECK(!message.empty());
  HW_CHECK_LE(message.size(), 2000u);
  for (const char c : message) HW_CHECK(c >= ' ' && c <= '~') << static_cast<int>(c);
}

}  // namespace

FuzzTarget MakeFuzzTarget() {
  FuzzTarget target;
  for (const char* name : {"llama3", "llama3_scaled", "mistral", "qwen3", "qwen3_window",
                           "qwen3_moe", "gpt_oss", "muse_glimmer", "muse_spark"}) {
    const absl::StatusOr<std::string> text =
        ReadWholeFile(std::string("tests/golden/data/") + name + "/config.json");
    HW_CHECK(text.ok()) << text.status();
    target.seeds.push_back(*text);
  }
  target.dictionary = {"0",
                       "-1",
                       "1",
                       "2147483648",
                       "2147483649",
                       "1e999",
                       "1e-320",
                       "NaN",
                       "-Infinity",
                       "null",
                       "true",
                       "{}",
                       "[]",
                       "\"sliding_attention\"",
                       "\"full_attention\"",
                       "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0},",
                       "\"rope_theta\": 500.0,",
                       "\"yarn\"",
                       "\"llama3\"",
                       "\"factor\": null,",
                       "\"quantization_config\": {},",
                       "\"head_dim\": null,",
                       "\\ud800",
                       "\xff"};
  target.finish = [] {
    std::printf("hf_config_fuzz: %ld accepted, %ld rejected, %ld not JSON\n", g_accepted,
                g_rejected, g_not_json);
    HW_CHECK_GT(g_accepted, 100);
    HW_CHECK_GT(g_rejected, 100);
  };
  return target;
}

}  // namespace headwise

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headwise;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<HfModel> hf = ParseHfConfig(text);
  if (!hf.ok()) {
    CheckMessage(hf.status().message());
    ++(hf.status().message().find("not valid JSON") == std::string::npos ? g_rejected : g_not_json);
    return 0;
  }
  ++g_accepted;
  HW_CHECK(ValidateModelConfig(hf->model).ok());
  HW_CHECK(*UpdateHfConfig(text, hf->model) == text);
  // A family has its model; an earlier one may have it too.
  const absl::StatusOr<std::string> written = HfConfigOf(hf->model);
  HW_CHECK(written.ok()) << written.status();
  const absl::StatusOr<HfModel> again = ParseHfConfig(*written);
  HW_CHECK(again.ok()) << again.status();
  HW_CHECK_EQ(ModelDifference(hf->model, again->model), "");
  // And with another vocabulary, what is not the decoder's stays.
  ModelConfig wider = hf->model;
  wider.set_vocab_size(wider.vocab_size() == 77 ? 78 : 77);
  const absl::StatusOr<std::string> updated = UpdateHfConfig(text, wider);
  HW_CHECK(updated.ok()) << updated.status();
  HW_CHECK_EQ(ModelDifference(wider, ParseHfConfig(*updated)->model), "");
  return 0;
}
