// Presets: complete run configurations by name, compiled into the binary (nothing is looked up on
// disk at run time).
//
//   for (const Preset& preset : ListPresets()) Print(preset.name, preset.summary);
//   HW_ASSIGN_OR_RETURN(const RunConfig run, LoadPreset("muse_17m"));
//
// The texts are model/presets/*.textproto. Every field is set there, defaults included, so that a
// preset is also an example.
#ifndef HEADWISE_MODEL_PRESETS_PRESETS_H_
#define HEADWISE_MODEL_PRESETS_PRESETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"

namespace headwise {

struct Preset {
  std::string name;     // "muse_demo"
  std::string summary;  // one line for a listing
  std::string text;     // the RunConfig in protobuf text format
};

// In the order in which to show them; the default of `train` first. Owned by the library,
// immutable.
const std::vector<Preset>& ListPresets();

// kNotFound names the nearest preset and lists all of them.
absl::StatusOr<RunConfig> LoadPreset(const std::string& name);

}  // namespace headwise

#endif  // HEADWISE_MODEL_PRESETS_PRESETS_H_
