// ThreadScratch: working memory of a kernel's task, kept by the thread between tasks.
//
//   pool.ParallelFor(tiles, [&](std::int64_t tile) {
//     ThreadScratch scratch;
//     float* scores = scratch.Take<float>(64 * 64);  // 64-byte aligned, uninitialised
//     ...
//   });  // given back; the next task on this thread finds it warm
//
// A fresh allocation of some hundred kilobytes per task costs page faults worth a tenth of a matrix
// product. Memory grows to the largest task's need and is freed when the thread ends. Scratches of
// one thread nest (last in, first out).
#ifndef HEADWISE_KERNELS_COMMON_THREAD_SCRATCH_H_
#define HEADWISE_KERNELS_COMMON_THREAD_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace headwise {

class ThreadScratch {
 public:
  ThreadScratch();
  // On the thread that made it.
  ~ThreadScratch();
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  // `count` elements, valid until this scratch is destroyed.
  template <typename T>
  T* Take(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<T*>(TakeBytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  void* TakeBytes(std::size_t bytes);

  std::size_t first_slot_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_THREAD_SCRATCH_H_
