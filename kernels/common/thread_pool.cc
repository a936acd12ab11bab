#include "kernels/common/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/check.h"

namespace headwise {

struct ThreadPool::State {
  // One ParallelFor.
  struct Job {
    absl::FunctionRef<void(std::int64_t)> task;
    std::int64_t num_tasks;
    std::atomic<std::int64_t> next{0};
  };

  int num_threads = 1;
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  Job* job = nullptr;            // guarded by mutex
  std::uint64_t generation = 0;  // guarded by mutex; one more for each job
  int running = 0;               // guarded by mutex; workers that have not finished the job
  bool stopping = false;         // guarded by mutex

  static void Run(Job& job) {
    for (std::int64_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.num_tasks;) {
      job.task(i);
    }
  }

  void Work() {
    std::uint64_t seen = 0;
    for (;;) {
      Job* mine;
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return stopping || generation != seen; });
        if (stopping) return;
        seen = generation;
        mine = job;
      }
      Run(*mine);
      std::lock_guard lock(mutex);
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  HW_CHECK_GE(num_threads, 1);
  state_->num_threads = num_threads;
  for (int i = 1; i < num_threads; ++i)
    state_->workers.emplace_back([s = state_.get()] { s->Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->start.notify_all();
  for (std::thread& t : state_->workers) t.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::ParallelFor(std::int64_t num_tasks, absl::FunctionRef<void(std::int64_t)> task) {
  HW_CHECK_GE(num_tasks, 0);
  if (state_->workers.empty() || num_tasks <= 1) {
    for (std::int64_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  State::Job job{task, num_tasks};
  {
    std::lock_guard lock(state_->mutex);
    HW_CHECK(state_->job == nullptr) << "ParallelFor inside a task of the same pool";
    state_->job = &job;
    state_->running = static_cast<int>(state_->workers.size());
    ++state_->generation;
  }
  state_->start.notify_all();
  State::Run(job);
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->running == 0; });
  state_->job = nullptr;
}

}  // namespace headwise
