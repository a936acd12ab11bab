// DeviceArena: host memory that can be touched only while it is unlocked, in the part of a GPU's.
//
//   DeviceArena arena;
//   void* x = arena.Allocate(1024);
//   *static_cast<float*>(x) = 1;          // the process dies of it
//   {
//     const DeviceArena::Unlock unlock(arena);
//     *static_cast<float*>(x) = 1;
//   }
//
// What was not written since it was allocated, and what was freed, is all ones: a NaN as a float, -1
// as an integer. Not thread-safe; threads may touch unlocked memory.
#ifndef HEADWISE_KERNELS_LAUNCHERS_DEVICE_ARENA_H_
#define HEADWISE_KERNELS_LAUNCHERS_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace headwise {

class DeviceArena {
 public:
  static constexpr std::int64_t kCapacity = std::int64_t{16} << 30;  // addresses, not memory

  DeviceArena();
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // At a multiple of 256. Null if the capacity is used up.
  void* Allocate(std::int64_t bytes);
  void Free(void* data, std::int64_t bytes);

  // Whether all bytes lie in one allocation that was not freed.
  bool Holds(const void* data, std::int64_t bytes) const;
  // Whether it is an address of the arena.
  bool Within(const void* data) const;
  const std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

  // Unlocks nest.
  class Unlock {
   public:
    explicit Unlock(DeviceArena& arena) : arena_(arena) {
      if (arena_.unlocks_++ == 0) arena_.Protect(false);
    }
    ~Unlock() {
      if (--arena_.unlocks_ == 0) arena_.Protect(true);
    }
    Unlock(const Unlock&) = delete;
    Unlock& operator=(const Unlock&) = delete;

   private:
    DeviceArena& arena_;
  };

 private:
  void Protect(bool lock);

  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
  int unlocks_ = 0;
  std::multimap<std::int64_t, void*> free_;         // by size
  std::map<const std::byte*, std::int64_t> sizes_;  // of what is allocated
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_DEVICE_ARENA_H_
