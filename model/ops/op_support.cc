#include "model/ops/op_support.h"

#include <sstream>
#include <string>

namespace headwise {

Tensor OpContext::Empty(Shape shape, DType dtype) const {
  if (device == Device::kCpu && storage != nullptr) return storage->Empty(std::move(shape), dtype);
  return Tensor::Empty(std::move(shape), dtype, device);
}

namespace ops {
namespace {

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream s;
  s << tensor.dtype() << " " << ToString(tensor.shape()) << " on " << tensor.device();
  return s.str();
}

}  // namespace

void CheckTensor(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 const Shape& shape, DType dtype) {
  HW_CHECK(tensor.defined() && tensor.shape() == shape && tensor.dtype() == dtype &&
           tensor.device() == ctx.device)
      << op << ": " << argument << " is " << Describe(tensor) << ", must be " << dtype << " "
      << ToString(shape) << " on " << ctx.device;
}

void CheckMatrix(const OpContext& ctx, const char* op, const char* argument, const Tensor& tensor,
                 DType dtype) {
  HW_CHECK(tensor.defined() && tensor.rank() == 2 && tensor.dtype() == dtype &&
           tensor.device() == ctx.device)
      << op << ": " << argument << " is " << Describe(tensor) << ", must be a " << dtype
      << " matrix on " << ctx.device;
}

void CheckUndefined(const char* op, const char* argument, const Tensor& tensor) {
  HW_CHECK(!tensor.defined()) << op << ": " << argument << " is " << Describe(tensor)
                              << ", must be undefined";
}

void CheckLength(const char* op, const char* argument, std::int64_t actual, std::int64_t expected) {
  HW_CHECK(actual == expected) << op << ": " << argument << " has " << actual
                               << " elements, must have " << expected;
}

}  // namespace ops
}  // namespace headwise
