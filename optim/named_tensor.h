// NamedTensor: a piece of optimizer state under the name that a checkpoint gives it, and the names.
#ifndef HEADWISE_OPTIM_NAMED_TENSOR_H_
#define HEADWISE_OPTIM_NAMED_TENSOR_H_

#include <string>

#include "core/tensor/tensor.h"

namespace headwise {

struct NamedTensor {
  std::string name;  // e.g. "momentum/layers.0.attention.wqkv"
  Tensor tensor;     // shares storage with its owner: reading it saves, writing into it loads
};

// Of a parameter's state; of the number of steps not skipped.
inline std::string MomentumName(const std::string& parameter) { return "momentum/" + parameter; }
inline std::string AdamWMName(const std::string& parameter) { return "adamw.m/" + parameter; }
inline std::string AdamWVName(const std::string& parameter) { return "adamw.v/" + parameter; }
inline constexpr char kAdamWUpdatesName[] = "adamw.updates";

}  // namespace headwise

#endif  // HEADWISE_OPTIM_NAMED_TENSOR_H_
