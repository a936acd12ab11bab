// Global memory and atomics of the emulation. Every access says what it touches and where in the
// kernel, then happens here, in the kernel's own object file, where sanitizers see it.
#ifndef HEADWISE_KERNELS_EMULATION_GLOBAL_MEMORY_H_
#define HEADWISE_KERNELS_EMULATION_GLOBAL_MEMORY_H_

#include <atomic>
#include <concepts>
#include <type_traits>

#include "kernels/emulation/runtime.h"

namespace headwise::emulation::device {

template <Movable T>
inline T LoadGlobal(const T* p, Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kLoad, site);
  return *p;
}
template <Movable T>
inline void StoreGlobal(T* p, const std::type_identity_t<T>& value, Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kStore, site);
  *p = value;
}

// The hints mean nothing here.
template <Movable T>
inline T LoadStreaming(const T* p, Site site = Site::current()) {
  return LoadGlobal(p, site);
}
template <Movable T>
inline void StoreStreaming(T* p, const std::type_identity_t<T>& value,
                           Site site = Site::current()) {
  StoreGlobal(p, value, site);
}
template <Movable T>
inline T LoadCached(const T* p, Site site = Site::current()) {
  return LoadGlobal(p, site);
}

// Relaxed, as CUDA's are: they order no other access. On global or shared memory.
template <typename T>
concept AtomicValue =
    std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;

template <AtomicValue T>
inline T atomicAdd(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kAtomic, site);
  return std::atomic_ref<T>(*p).fetch_add(value, std::memory_order_relaxed);
}
template <AtomicValue T>
inline T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value,
                   Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kAtomic, site);
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}
template <AtomicValue T>
inline T atomicMin(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kAtomic, site);
  std::atomic_ref<T> atomic(*p);
  T old = atomic.load(std::memory_order_relaxed);
  while (value < old && !atomic.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <AtomicValue T>
inline T atomicMax(T* p, std::type_identity_t<T> value, Site site = Site::current()) {
  TouchGlobal(p, sizeof(T), Use::kAtomic, site);
  std::atomic_ref<T> atomic(*p);
  T old = atomic.load(std::memory_order_relaxed);
  while (old < value && !atomic.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace headwise::emulation::device

#endif  // HEADWISE_KERNELS_EMULATION_GLOBAL_MEMORY_H_
