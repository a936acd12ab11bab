// The emulation of CUDA kernels on the CPU, for tests and tools: in which order the threads of a
// launch run, where kernels may read and write, what they touched, and what they did wrong.
//
//   emulation::Session session({.order = emulation::ThreadOrder::kReverse, .count_traffic = true});
//   session.AddRows<const float>("x", x);
//   session.AddRows("y", y);
//   HW_RETURN_IF_ERROR(cuda_emulated::Scale(x.data, y.data, n, /*stream=*/nullptr));
//   session.traffic("x").loads;   // bytes
//
// cuda_kernel.h says what a kernel is written in; docs/cuda.md what the emulation shows and what it
// cannot show.
#ifndef HEADWISE_KERNELS_EMULATION_EMULATION_H_
#define HEADWISE_KERNELS_EMULATION_EMULATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "core/tensor/row_span.h"
#include "kernels/emulation/dim3.h"

namespace headwise::emulation {

// Which of the threads that could go on does. A warp's threads run until each has to wait.
enum class ThreadOrder {
  kForward,  // the lowest index first; blocks ascending
  kReverse,  // the highest index first; blocks descending
  kRandom,   // any, chosen by Options::seed; blocks in random order
};

struct Options {
  ThreadOrder order = ThreadOrder::kForward;
  std::uint64_t seed = 0;
  // The blocks of a launch are spread over so many; the results, traffic and findings are the same.
  int os_threads = 1;
  // kRandom: the chance that another thread runs before an access to memory.
  double preempt = 0;
  bool count_traffic = false;
};

enum class Access { kRead, kReadWrite };

// What launches moved to and from a region. A request is what the threads of a warp do together: one
// access of each, at one place of the kernel, the same time round. It moves whole sectors.
struct Traffic {
  std::int64_t loads = 0;    // bytes that threads asked for
  std::int64_t stores = 0;   // bytes
  std::int64_t atomics = 0;  // bytes
  std::int64_t requests = 0;
  std::int64_t sectors = 0;              // of 32 bytes, each once per request
  std::int64_t partly_used_sectors = 0;  // of these, with bytes that no thread asked for
  int narrowest = 0, widest = 0;         // bytes of one access; 0 if there was none

  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct Launch {
  std::string kernel;
  Dim3 grid, block;
  std::int64_t dynamic_shared_bytes = 0;
  std::int64_t static_shared_bytes = 0;
};

struct SessionState;  // session_state.h

// While it lives, launches made by the OS thread that made it run under it. Sessions of one thread
// nest; the innermost counts. A launch without a session runs forward, with no regions.
//
// The first finding ends its launch and makes later launches of the session do nothing.
class Session {
 public:
  explicit Session(const Options& options = {});
  ~Session();  // on the thread that made it
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Kernels may touch `bytes` bytes at `data`, owned by the caller. Once there is a region, an
  // access outside all of them is a finding. Regions may overlap: an access is allowed if one of
  // them allows it, and counts for the first that does. Names are unique.
  void AddRegion(std::string name, const void* data, std::int64_t bytes, Access access);
  // The elements of the rows; the gaps between rows lie outside. Rows of a const T are read only.
  template <typename T>
  void AddRows(std::string name, RowSpan<T> rows) {
    constexpr std::int64_t kBytes = sizeof(T);
    AddStridedRegion(std::move(name), rows.data, rows.rows, rows.width * kBytes,
                     rows.stride * kBytes, std::is_const_v<T> ? Access::kRead : Access::kReadWrite);
  }

  // Counted with Options::count_traffic; zero without. The region must exist.
  const Traffic& traffic(const std::string& name) const;
  const std::vector<Launch>& launches() const;

  // OK, or kInternal with the first finding: what, kernel, block, thread, file and line.
  absl::Status status() const;

 private:
  void AddStridedRegion(std::string name, const void* data, std::int64_t rows, std::int64_t width,
                        std::int64_t stride, Access access);

  std::unique_ptr<SessionState> state_;
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_EMULATION_H_
