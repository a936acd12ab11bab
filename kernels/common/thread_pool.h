// ThreadPool: runs numbered tasks on a fixed number of threads. Passed to every kernel; there is no
// global one.
//
//   ThreadPool pool(2);
//   pool.ParallelFor(tiles, [&](std::int64_t tile) { ... });
//
// Determinism is the caller's: how the work is cut into tasks must not depend on num_threads()
// where the cut shows in a bit of the result, and a task writes only what is its own. Which thread
// runs which task is not determined.
#ifndef HEADWISE_KERNELS_COMMON_THREAD_POOL_H_
#define HEADWISE_KERNELS_COMMON_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace headwise {

class ThreadPool {
 public:
  // num_threads >= 1, counting the caller's. With 1 there are no other threads and tasks run in
  // order.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(i) for every i in [0, num_tasks), and returns when all have returned. Tasks must not
  // throw and must not call ParallelFor of the same pool. One caller at a time.
  void ParallelFor(std::int64_t num_tasks, absl::FunctionRef<void(std::int64_t)> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_THREAD_POOL_H_
