// Elementwise kernels over matrices of one shape, one thread for 16 bytes of the widest storage
// type, or for an element where alignments do not allow that. The vector's width shows in no bit.
//
//   template <typename T>
//   struct AddBody {
//     static constexpr bool kFlattens = true;    // looks at no column: contiguous rows become one
//     Rows<const T> a, b;
//     Rows<T> out;
//     template <int N>    // N elements from there on
//     __device__ void Run(std::int64_t row, std::int64_t column) const {
//       Fp32 x[N], y[N];
//       LoadElements(a.row(row) + column, x);
//       LoadElements(b.row(row) + column, y);
//       for (int i = 0; i < N; ++i) x[i] = x[i] + y[i];
//       StoreElements(out.row(row) + column, x);
//     }
//   };
//   const AddBody<T> body = {MakeRows(a), MakeRows(b), MakeRows(out)};
//   return MapRows("Add", body, stream, /*aligned=*/true, a, b, out);
#ifndef HEADWISE_KERNELS_COMMON_CUDA_MAP_ROWS_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_MAP_ROWS_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/tensor/row_span.h"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kMapThreads = 256;

template <int kVector, typename Body>
__global__ void __launch_bounds__(kMapThreads, 4)
    MapRowsKernel(const Body body, std::int64_t rows, std::int64_t width,
                  std::int64_t units_per_row) {
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  const std::int64_t row = rows == 1 ? 0 : DivideUnits(unit, static_cast<int>(units_per_row));
  std::int64_t column = (unit - row * units_per_row) * kVector;
  if (row >= rows) return;
  if (column + kVector <= width) {
    body.template Run<kVector>(row, column);
  } else {
    for (; column < width; ++column) body.template Run<1>(row, column);
  }
}

// Elements of T, or of the widest of several types, in 16 bytes.
template <typename... T>
inline constexpr int kVectorOf = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <int kVector, typename Body>
absl::Status LaunchMapRows(const char* name, const Body& body, CUstream_st* stream,
                           std::int64_t rows, std::int64_t width) {
  HW_CHECK(rows == 1 || width <= std::numeric_limits<int>::max()) << name << ": width " << width;
  const std::int64_t units_per_row = (width + kVector - 1) / kVector;
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks(name, "rows", rows, units_per_row, kMapThreads, blocks));
  HW_LAUNCH((MapRowsKernel<kVector, Body>), static_cast<unsigned>(blocks), kMapThreads, 0, stream,
            body, rows, width, units_per_row);
  return LaunchStatus(name);
}

// The matrices that `body` touches, all of one shape (HW_CHECK). `aligned`: what else it
// touches allows vectors.
template <typename Body, typename... T>
absl::Status MapRows(const char* name, const Body& body, CUstream_st* stream, bool aligned,
                     RowSpan<T>... spans) {
  std::int64_t rows = 0, width = 0;
  ((rows = spans.rows, width = spans.width), ...);
  ((HW_CHECK_EQ(spans.rows, rows) << name, HW_CHECK_EQ(spans.width, width) << name), ...);
  if (rows == 0 || width == 0) return absl::OkStatus();
  if (Body::kFlattens && (spans.contiguous() && ...)) {
    width *= rows;
    rows = 1;
    ((spans.rows = 1), ...);
  }
  constexpr int kVector = kVectorOf<T...>;
  aligned = aligned && (AlignedTo(kVector * static_cast<int>(sizeof(T)), spans) && ...);
  return aligned ? LaunchMapRows<kVector>(name, body, stream, rows, width)
                 : LaunchMapRows<1>(name, body, stream, rows, width);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_MAP_ROWS_CUH_
