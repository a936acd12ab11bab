// Shared memory of the emulation: SharedArray checks bounds, and that what is read was written by
// the block.
#ifndef HEADWISE_KERNELS_EMULATION_SHARED_MEMORY_H_
#define HEADWISE_KERNELS_EMULATION_SHARED_MEMORY_H_

#include <concepts>
#include <cstdint>

#include "kernels/emulation/runtime.h"

namespace headwise::emulation::device {

// An index and where in the kernel it stands: operator[] cannot have a default argument of its own.
struct SharedIndex {
  template <std::integral I>
  SharedIndex(I i, Site site = Site::current())  // NOLINT(google-explicit-constructor)
      : i(static_cast<std::int64_t>(i)), site(site) {}

  std::int64_t i;
  Site site;
};

// What name[i] is: a T to read, to assign to, or (by &) to hand to an atomic operation.
template <Movable T>
class SharedElement {
 public:
  SharedElement(const SharedRange& range, SharedIndex index) : range_(range), index_(index) {}
  SharedElement(const SharedElement&) = default;

  operator T() const {  // NOLINT(google-explicit-constructor)
    TouchShared(range_, index_.i * std::int64_t{sizeof(T)}, sizeof(T), Use::kLoad, index_.site);
    return *data();
  }
  const SharedElement& operator=(T value) const {
    TouchShared(range_, index_.i * std::int64_t{sizeof(T)}, sizeof(T), Use::kStore, index_.site);
    *data() = value;
    return *this;
  }
  const SharedElement& operator=(const SharedElement& other) const {
    return *this = static_cast<T>(other);
  }
  const SharedElement& operator+=(T value) const requires std::integral<T> {
    return *this = static_cast<T>(static_cast<T>(*this) + value);
  }
  const SharedElement& operator|=(T value) const requires std::integral<T> {
    return *this = static_cast<T>(static_cast<T>(*this) | value);
  }
  T* operator&() const {  // NOLINT(google-runtime-operator)
    TouchShared(range_, index_.i * std::int64_t{sizeof(T)}, sizeof(T), Use::kAtomic, index_.site);
    return data();
  }

 private:
  T* data() const { return reinterpret_cast<T*>(range_.data) + index_.i; }

  SharedRange range_;
  SharedIndex index_;
};

template <Movable T>
class SharedArray {
 public:
  explicit SharedArray(const SharedRange& range) : range_(range) {}

  SharedElement<T> operator[](SharedIndex i) const { return {range_, i}; }
  // A U from element i on; the address must be a multiple of U's size.
  template <Movable U>
  U Load(std::int64_t i, Site site = Site::current()) const {
    TouchShared(range_, i * std::int64_t{sizeof(T)}, sizeof(U), Use::kLoad, site);
    return *reinterpret_cast<const U*>(range_.data + i * sizeof(T));
  }
  template <Movable U>
  void Store(std::int64_t i, const U& value, Site site = Site::current()) const {
    TouchShared(range_, i * std::int64_t{sizeof(T)}, sizeof(U), Use::kStore, site);
    *reinterpret_cast<U*>(range_.data + i * sizeof(T)) = value;
  }

 private:
  SharedRange range_;
};

}  // namespace headwise::emulation::device

#define HW_SHARED(T, name, count)                                                               \
  static constexpr char name##_key = 0;                                                         \
  const ::headwise::emulation::device::SharedArray<T> name(::headwise::emulation::StaticShared( \
      &name##_key, (count) * static_cast<std::int64_t>(sizeof(T)),                              \
      ::headwise::emulation::Site::current()))

#define HW_DYNAMIC_SHARED(T, name, byte_offset)                                                  \
  const ::headwise::emulation::device::SharedArray<T> name(::headwise::emulation::DynamicShared( \
      (byte_offset), alignof(T), ::headwise::emulation::Site::current()))

#endif  // HEADWISE_KERNELS_EMULATION_SHARED_MEMORY_H_
