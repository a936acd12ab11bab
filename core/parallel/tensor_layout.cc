#include "core/parallel/tensor_layout.h"

#include <memory>
#include <utility>

namespace headwise {

Tensor TensorLayout::Attach(Tensor tensor, const LayoutType& layout) {
  tensor.layout_ = layout.defined() ? std::make_shared<const LayoutType>(layout) : nullptr;
  return tensor;
}

const LayoutType* TensorLayout::Find(const Tensor& tensor) { return tensor.layout_.get(); }

LayoutType LayoutOf(const Tensor& tensor) {
  const LayoutType* layout = TensorLayout::Find(tensor);
  return layout == nullptr ? LayoutType() : *layout;
}

}  // namespace headwise
