#include "core/tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace headwise {
namespace {

constexpr std::int64_t kAlignment = 64;

std::shared_ptr<void> Allocate(std::int64_t bytes) {
  const std::int64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* p =
      std::aligned_alloc(kAlignment, static_cast<std::size_t>(padded > 0 ? padded : kAlignment));
  HW_CHECK(p != nullptr) << "out of memory allocating " << bytes << " bytes";
  return std::shared_ptr<void>(p, std::free);
}

}  // namespace

const char* Name(Device device) {
  switch (device) {
    case Device::kMeta:
      return "meta";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << Name(device); }

std::string ToString(const Shape& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(shape[i]);
  }
  return s + "]";
}

std::int64_t NumElements(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    HW_CHECK_GE(d, 0) << "in shape " << ToString(shape);
    HW_CHECK(d == 0 || n <= std::numeric_limits<std::int64_t>::max() / 16 / d)
        << "too many elements in shape " << ToString(shape);
    n *= d;
  }
  return n;
}

Tensor::Tensor(Shape shape, DType dtype, Device device, std::shared_ptr<void> storage, void* data)
    : defined_(true),
      shape_(std::move(shape)),
      size_(NumElements(shape_)),
      dtype_(dtype),
      device_(device),
      storage_(std::move(storage)),
      data_(data) {}

Tensor Tensor::Empty(Shape shape, DType dtype, Device device) {
  HW_CHECK(device != Device::kCuda) << "device tensors come from the device's own allocator";
  if (device == Device::kMeta) return Tensor(std::move(shape), dtype, device, nullptr, nullptr);
  std::shared_ptr<void> storage = Allocate(NumElements(shape) * SizeOf(dtype));
  void* data = storage.get();
  return Tensor(std::move(shape), dtype, device, std::move(storage), data);
}

Tensor Tensor::Zeros(Shape shape, DType dtype, Device device) {
  Tensor t = Empty(std::move(shape), dtype, device);
  if (t.data_ != nullptr) std::memset(t.data_, 0, static_cast<std::size_t>(t.bytes()));
  return t;
}

std::int64_t Tensor::dim(int i) const {
  const int k = i < 0 ? i + rank() : i;
  HW_CHECK(k >= 0 && k < rank()) << "dim " << i << " of shape " << ToString(shape_);
  return shape_[k];
}

Tensor Tensor::View(Shape shape) const {
  HW_CHECK_EQ(NumElements(shape), size_)
      << "view of " << ToString(shape_) << " as " << ToString(shape);
  return Tensor(std::move(shape), dtype_, device_, storage_, data_);
}

Tensor Tensor::Slice(std::int64_t begin, std::int64_t count) const {
  HW_CHECK_GE(rank(), 1) << "slice of a scalar";
  HW_CHECK(begin >= 0 && count >= 0 && begin <= shape_[0] - count)
      << "rows [" << begin << ", " << begin + count << ") of shape " << ToString(shape_);
  Shape shape = shape_;
  const std::int64_t row = shape_[0] == 0 ? 0 : size_ / shape_[0];
  shape[0] = count;
  void* data =
      data_ == nullptr ? nullptr : static_cast<char*>(data_) + begin * row * SizeOf(dtype_);
  return Tensor(std::move(shape), dtype_, device_, storage_, data);
}

Tensor Tensor::Clone() const {
  if (!defined_) return Tensor();
  Tensor t = Empty(shape_, dtype_, device_);
  if (t.data_ != nullptr) std::memcpy(t.data_, data_, static_cast<std::size_t>(bytes()));
  t.layout_ = layout_;
  return t;
}

void Tensor::CheckAccess(DType dtype) const {
  HW_CHECK(defined_) << "data of an undefined tensor";
  HW_CHECK_EQ(dtype_, dtype) << "element type of tensor " << ToString(shape_);
  HW_CHECK(device_ != Device::kMeta) << "data of a tensor on device " << device_;
}

}  // namespace headwise
