// CheckWeightMemory: a step writes its weights' values and reads their gradients, so no value may
// share memory with another value or with a gradient. Gradients may share theirs.
//
//   HW_RETURN_IF_ERROR(CheckWeightMemory({{"a", a.value, a.gradient}, {"b", b.value, b.gradient}}));
#ifndef HEADWISE_OPTIM_WEIGHT_MEMORY_H_
#define HEADWISE_OPTIM_WEIGHT_MEMORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"

namespace headwise {

// Only addresses are looked at: memory of any device.
struct WeightMemory {
  std::string name;
  RowSpan<const float> value, gradient;
};

// kInvalidArgument names both: "weights a and b share memory".
absl::Status CheckWeightMemory(absl::Span<const WeightMemory> weights);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_WEIGHT_MEMORY_H_
