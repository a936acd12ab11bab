#include "model/presets/presets.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "google/protobuf/text_format.h"

namespace headwise {
namespace {

struct PresetText {
  const char* name;
  const char* text;
};

const PresetText kTexts[] = {
#include "model/presets/preset_texts.inc"
};

// The first sentence of the comment that opens a preset, without its name: "# muse_demo: The
// default of ... Every ...".
std::string Summary(const std::string& name, const std::string& text) {
  const std::string opening = absl::StrCat("# ", name, ": ");
  HW_CHECK(text.rfind(opening, 0) == 0)
      << "preset " << name << " must open with '" << opening << "'";
  std::string comment;
  for (std::size_t line = 0; line < text.size() && text[line] == '#';) {
    const std::size_t end = text.find('\n', line);
    if (!comment.empty()) comment += ' ';
    comment += text.substr(line + 2, end - line - 2);
    line = end + 1;
  }
  comment.erase(0, opening.size() - 2);
  return comment.substr(0, comment.find(". "));
}

}  // namespace

const std::vector<Preset>& ListPresets() {
  static const auto* presets = [] {
    auto* list = new std::vector<Preset>;
    for (const PresetText& preset : kTexts) {
      list->push_back({preset.name, Summary(preset.name, preset.text), preset.text});
    }
    return list;
  }();
  return *presets;
}

absl::StatusOr<RunConfig> LoadPreset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : ListPresets()) {
    if (preset.name == name) {
      RunConfig config;
      HW_CHECK(google::protobuf::TextFormat::ParseFromString(preset.text, &config))
          << "preset " << name;
      return config;
    }
    names.push_back(preset.name);
  }
  return absl::NotFoundError(absl::StrCat("preset '", name, "' does not exist",
                                          DidYouMean(name, names),
                                          " (presets: ", absl::StrJoin(names, ", "), ")"));
}

}  // namespace headwise
