// Which configurations and options of a decoder go together. Internal to the decoder.
#ifndef HEADWISE_MODEL_DECODER_OPTIONS_H_
#define HEADWISE_MODEL_DECODER_OPTIONS_H_

#include "absl/status/status.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"

namespace headwise {

// For a config that is valid: kInvalidArgument for options that exclude each other, or that this
// config does not go with; kUnimplemented for what a GPU cannot do yet.
absl::Status CheckDecoderOptions(const ModelConfig& config, const DecoderOptions& options);

}  // namespace headwise

#endif  // HEADWISE_MODEL_DECODER_OPTIONS_H_
