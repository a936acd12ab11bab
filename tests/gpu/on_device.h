// OnDevice: one test's matrices in device memory, and its launches. Runs them twice, by themselves
// and out of a CUDA graph, and compares the bytes.
//
//   OnDevice device;
//   const RowSpan<const float> x = device.In(problem.x);
//   const RowSpan<float> y = device.Out(results.y);
//   float* const scratch = device.Scratch<float>(n);
//   ASSERT_EQ(device.Run([&](CUstream_st* stream) { return Launch(x, y, scratch, stream); }),
//             absl::OkStatus());
//   ExpectSameBits<float>(results.y.view(), expected.y.view(), "y");
//   results.y.ExpectGapsUntouched();
#ifndef HEADWISE_TESTS_GPU_ON_DEVICE_H_
#define HEADWISE_TESTS_GPU_ON_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/device_memory.h"
#include "core/tensor/row_span.h"
#include "kernels/common/testing/device_mirror.h"
#include "kernels/common/testing/kernel_testing.h"

struct CUstream_st;

namespace headwise {

// Originals must outlive this object and stay where they are. What cannot be allocated is null, and
// Run() says why. Not thread-safe.
class OnDevice {
 public:
  // Copies, aligned as the originals, the elements around and between their rows included. Run()
  // fails if anything was written to an In(); it copies an Out() back.
  template <typename T>
  RowSpan<const T> In(const TestMatrix<T>& m) {
    return Add(m.storage(), nullptr).Translate(m.view());
  }
  template <typename T>
  RowSpan<T> Out(TestMatrix<T>& m) {
    return Add(m.storage(), m.storage().data).Translate(m.span());
  }
  template <typename T>
  absl::Span<const T> In(absl::Span<const T> values) {
    return Add(RowSpan<const T>(values.data(), 1, static_cast<std::int64_t>(values.size())),
               nullptr)
        .Translate(values);
  }

  template <typename T>
  absl::Span<T> Out(std::vector<T>& values) {
    return Add(RowSpan<const T>(values.data(), 1, static_cast<std::int64_t>(values.size())),
               values.data())
        .Translate(absl::MakeSpan(values));
  }

  // Memory that holds NaN, as fp32 and bf16; -1, as an integer. Nobody looks at it afterwards.
  template <typename T>
  T* Scratch(std::int64_t size) {
    return reinterpret_cast<T*>(AllOnes(size * std::int64_t{sizeof(T)}));
  }
  // A word for kernels that keep the place of the first bad index: all ones before each run.
  std::uint64_t* Fault();
  // What it held after Run().
  std::uint64_t fault() const { return fault_; }

  // Enqueues on the default stream, then once more in a graph from the same memory, and copies the
  // outputs back. The first error of all, kInternal if an input changed or the graph made other
  // bytes.
  absl::Status Run(absl::FunctionRef<absl::Status(CUstream_st*)> enqueue);

 private:
  struct Copy {
    DeviceMirror mirror;
    const void* original;
    void* out;                      // the same, of an output; null of an input
    std::vector<std::byte> before;  // of an output
  };

  template <typename T>
  const DeviceMirror& Add(RowSpan<T> values, void* out) {
    absl::StatusOr<DeviceMirror> mirror = DeviceMirror::Of(values);
    status_.Update(mirror.status());
    Copy copy = {.original = values.data, .out = out};
    if (mirror.ok()) copy.mirror = *std::move(mirror);
    if (out != nullptr) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(values.data);
      copy.before.assign(bytes, bytes + values.size() * sizeof(T));
    }
    copies_.push_back(std::move(copy));
    return copies_.back().mirror;
  }
  std::byte* AllOnes(std::int64_t bytes);
  // As before the first run.
  absl::Status Reset();

  std::list<Copy> copies_;
  std::list<DeviceMemory> scratch_;
  DeviceArray<std::uint64_t> fault_word_;
  std::uint64_t fault_ = 0;
  absl::Status status_;
};

}  // namespace headwise

#endif  // HEADWISE_TESTS_GPU_ON_DEVICE_H_
