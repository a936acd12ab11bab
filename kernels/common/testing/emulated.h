// For tests of emulated CUDA kernels: the orders of threads that bits are compared in, and regions.
//
//   for (const emulation::Options& order : kThreadOrders) {
//     emulation::Session session(order);
//     AddMatrix(session, "x", x.view());
//     AddMatrix(session, "y", y.span());
//     ASSERT_EQ(cuda_emulated::Scale(x.view(), y.span(), /*stream=*/nullptr), absl::OkStatus());
//   }
#ifndef HEADWISE_KERNELS_COMMON_TESTING_EMULATED_H_
#define HEADWISE_KERNELS_COMMON_TESTING_EMULATED_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/emulation/emulation.h"

namespace headwise {

inline constexpr emulation::Options kThreadOrders[] = {
    {.order = emulation::ThreadOrder::kForward},
    {.order = emulation::ThreadOrder::kReverse, .os_threads = 2},
    {.order = emulation::ThreadOrder::kRandom, .seed = 7, .preempt = 0.01},
};

// What a kernel may touch; of const T, only read. Nothing if it is empty.
template <typename T>
void AddMatrix(emulation::Session& session, std::string name, RowSpan<T> rows) {
  if (!rows.empty()) session.AddRows(std::move(name), rows);
}
template <typename T>
void AddArray(emulation::Session& session, std::string name, absl::Span<T> values) {
  AddMatrix(session, std::move(name),
            RowSpan<T>(values.data(), 1, static_cast<std::int64_t>(values.size())));
}

// A matrix whose rows start on multiples of 64 bytes, so that a test of traffic can ask for full
// sectors. Zeros.
template <typename T>
class SectorRows {
 public:
  SectorRows(std::int64_t rows, std::int64_t width)
      : rows_(rows), width_(width), lines_(rows * LinesOf(width)) {}

  RowSpan<T> span() {
    return {reinterpret_cast<T*>(lines_.data()), rows_, width_, LinesOf(width_) * kPerLine};
  }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  static constexpr std::int64_t kPerLine = sizeof(Line) / sizeof(T);
  static std::int64_t LinesOf(std::int64_t width) { return (width + kPerLine - 1) / kPerLine; }

  std::int64_t rows_, width_;
  std::vector<Line> lines_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_EMULATED_H_
