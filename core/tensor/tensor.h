// Tensor: shape, dtype, device and storage. The value that model/ops.h passes around.
//
//   Tensor x = Tensor::Zeros({tokens, dim}, DType::kBF16, Device::kCpu);
//   RowSpan<const float> rows = logits.Rows<float>();   // the last dimension is the width
//   Tensor same = x.View({tokens, heads, head_dim});    // shares storage
//
// Copies share storage (like a shared_ptr); Clone() makes new storage. On Device::kMeta there is no
// storage: shapes and dtypes are checked, nothing is computed, and asking for data is a failed
// HW_CHECK. On Device::kCuda data are addresses that only the GPU may read. Storage is contiguous, row-major and 64-byte aligned. Not synchronised: one writer, or
// many readers.
//
// A tensor may carry a sharded layout, of which its shape is one rank's share
// (core/parallel/tensor_layout.h). View() and Slice() leave it behind: what a view's layout is, only
// an operation can say.
#ifndef HEADWISE_CORE_TENSOR_TENSOR_H_
#define HEADWISE_CORE_TENSOR_TENSOR_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"

namespace headwise {

enum class Device { kMeta, kCpu, kCuda };

class LayoutType;  // core/parallel/layout_type.h

const char* Name(Device device);
std::ostream& operator<<(std::ostream& out, Device device);

using Shape = std::vector<std::int64_t>;

// "[2, 3]"
std::string ToString(const Shape& shape);
// The product of the dimensions; 1 for a scalar (rank 0).
std::int64_t NumElements(const Shape& shape);

class Tensor {
 public:
  // No shape, no storage; defined() is false.
  Tensor() = default;

  // Uninitialised elements. A dimension may be 0.
  static Tensor Empty(Shape shape, DType dtype, Device device);
  static Tensor Zeros(Shape shape, DType dtype, Device device);
  // Borrows `data` (not owned, must outlive every copy of the tensor), row-major.
  template <typename T>
  static Tensor Borrow(T* data, Shape shape) {
    return Tensor(std::move(shape), kDType<T>, Device::kCpu,
                  std::shared_ptr<void>(data, [](void*) {}), data);
  }

  // Elements on kCpu or kCuda that lie at storage.get(): for allocators. The storage is released by
  // its own deleter when the last copy of the tensor goes; it must hold the shape and be 64-byte
  // aligned.
  static Tensor FromStorage(std::shared_ptr<void> storage, Shape shape, DType dtype,
                            Device device = Device::kCpu) {
    void* data = storage.get();
    return Tensor(std::move(shape), dtype, device, std::move(storage), data);
  }

  // On Device::kMeta, holding on to `storage`, which lives as long as the last copy of the tensor:
  // for accounts of memory that is not there.
  static Tensor Meta(Shape shape, DType dtype, std::shared_ptr<void> storage) {
    return Tensor(std::move(shape), dtype, Device::kMeta, std::move(storage), nullptr);
  }

  bool defined() const { return defined_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  // dim(-1) is the last dimension.
  std::int64_t dim(int i) const;
  std::int64_t size() const { return size_; }
  std::int64_t bytes() const { return size_ * SizeOf(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // Elements, first to last. T must be the dtype's C++ type; the device must hold data.
  template <typename T>
  T* data() const {
    CheckAccess(kDType<T>);
    return static_cast<T*>(data_);
  }
  void* raw_data() const { return data_; }

  // Everything but the last dimension becomes rows.
  template <typename T>
  RowSpan<T> Rows() const {
    CheckAccess(kDType<std::remove_const_t<T>>);
    const std::int64_t width = rank() == 0 ? 1 : shape_.back();
    return RowSpan<T>(static_cast<T*>(data_), width == 0 ? 0 : size_ / width, width);
  }

  // The same storage under another shape of equal size.
  Tensor View(Shape shape) const;
  // Rows [begin, begin + count) of the first dimension; shares storage.
  Tensor Slice(std::int64_t begin, std::int64_t count) const;
  // New storage with the same elements (on kMeta: the same shape), and the same layout.
  Tensor Clone() const;

 private:
  friend class TensorLayout;  // core/parallel/tensor_layout.h
  Tensor(Shape shape, DType dtype, Device device, std::shared_ptr<void> storage, void* data);
  void CheckAccess(DType dtype) const;

  bool defined_ = false;
  Shape shape_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::kF32;
  Device device_ = Device::kMeta;
  std::shared_ptr<void> storage_;             // null or an account on kMeta
  void* data_ = nullptr;                      // may lie inside storage_ (Slice)
  std::shared_ptr<const LayoutType> layout_;  // null: none
};

}  // namespace headwise

#endif  // HEADWISE_CORE_TENSOR_TENSOR_H_
