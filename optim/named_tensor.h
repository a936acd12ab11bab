// NamedTensor: a piece of optimizer state under the name that a checkpoint gives it.
#ifndef HEADWISE_OPTIM_NAMED_TENSOR_H_
#define HEADWISE_OPTIM_NAMED_TENSOR_H_

#include <string>

#include "core/tensor/tensor.h"

namespace headwise {

struct NamedTensor {
  std::string name;  // e.g. "momentum/layers.0.attention.wqkv"
  Tensor tensor;     // shares storage with its owner: reading it saves, writing into it loads
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_NAMED_TENSOR_H_
