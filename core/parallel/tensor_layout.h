// The sharded layout that a tensor carries.
//
//   const LayoutType type = LayoutOf(x);   // undefined if x carries none
//
// A layout comes from a leaf, a rule or a step, and is attached by what runs these: the operations
// of a model and the steps between them. TensorLayout is for them alone (its target's visibility),
// so that no layout is ever stated.
#ifndef HEADWISE_CORE_PARALLEL_TENSOR_LAYOUT_H_
#define HEADWISE_CORE_PARALLEL_TENSOR_LAYOUT_H_

#include "core/parallel/layout_type.h"
#include "core/tensor/tensor.h"

namespace headwise {

LayoutType LayoutOf(const Tensor& tensor);

class TensorLayout {
 public:
  // Null if the tensor carries none.
  static const LayoutType* Find(const Tensor& tensor);
  // The same storage with this layout; with an undefined one, without any.
  static Tensor Attach(Tensor tensor, const LayoutType& layout);
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_TENSOR_LAYOUT_H_
