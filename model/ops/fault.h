// Faults: what can be wrong with the values in a GPU's memory that say where a kernel reads. Kernels
// leave out what is out of range, and keep the smallest index of each kind in a word of device
// memory, which the host looks at when it waits for the GPU anyway.
#ifndef HEADWISE_MODEL_OPS_FAULT_H_
#define HEADWISE_MODEL_OPS_FAULT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace headwise::ops {

enum class Fault {
  kToken,     // outside of the vocabulary
  kTarget,    // neither in it nor kIgnoredTarget; counted within a chunk of LinearCrossEntropy
  kPosition,  // outside of the rotary table
  kSegment,   // outside of the rows of queries or keys
  kExpert,    // not one of the layer's; of its token
};
inline constexpr int kFaults = 5;  // words, by kind
inline constexpr std::uint64_t kNoFault = ~std::uint64_t{0};

// "Embedding: token", ...: where it shows, and what is counted.
const char* Name(Fault fault);

// kInvalidArgument, "Embedding: token 3 is out of range", for the first fault in `words` [kFaults].
absl::Status FaultStatus(absl::Span<const std::uint64_t> words);

}  // namespace headwise::ops

#endif  // HEADWISE_MODEL_OPS_FAULT_H_
