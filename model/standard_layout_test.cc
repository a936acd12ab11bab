#include "model/standard_layout.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/parallel/layout_checker.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

// "", or what is wrong.
std::string Mistakes(ModelConfig config, const std::string& mesh_text, bool sequence_parallel,
                     bool unfused = false, std::int64_t length = 4096) {
  config.mutable_attention()->set_unfused_qkv(unfused);
  const auto mesh = Mesh::Parse(mesh_text);
  if (!mesh.ok()) return std::string(mesh.status().message());
  const auto layout = StandardLayout(config, *mesh, {.sequence_parallel = sequence_parallel});
  if (!layout.ok()) return std::string(layout.status().message());
  LayoutChecker checker(layout->mesh, layout->plan);
  const auto report = TypePass(config, {.length = length}, checker);
  if (!report.ok()) return std::string(report.status().message());
  return std::string(checker.status().message());
}

TEST(StandardLayout, IsAcceptedForEveryPresetOnEverySmallMesh) {
  for (const Preset& preset : ListPresets()) {
    const ModelConfig config = LoadPreset(preset.name)->model();
    for (const char* mesh : {"", "dp=2", "cp=2", "tp=2", "dp=2,cp=2,tp=2", "tp=2,ep=2",
                             "dp=2,tp=2,ep=2", "dp=2,tp=2,ep=4", "dp=4,ep=2"}) {
      for (const bool sp : {false, true}) {
        EXPECT_EQ(Mistakes(config, mesh, sp), "") << preset.name << " " << mesh << " sp " << sp;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
