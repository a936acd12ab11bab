// The tiny presets at a size at which a pass takes milliseconds, for tests of layouts.
#ifndef HEADWISE_MODEL_TEST_PRESETS_H_
#define HEADWISE_MODEL_TEST_PRESETS_H_

#include <string>

#include "core/proto/config.pb.h"

namespace headwise {

// The parts of a preset ("qwen3_tiny") in two narrow layers: its norms, gates, biases, sinks,
// experts and ratios of heads, with a width of 32, heads of 4, windows of 5 tokens and 32 tokens of
// vocabulary. The process fails if there is no such preset.
ModelConfig SmallPreset(const std::string& name);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TEST_PRESETS_H_
