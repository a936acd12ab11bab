// Strided matrices in device code, and what launchers ask of them.
#ifndef HEADWISE_KERNELS_COMMON_CUDA_ROWS_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_ROWS_CUH_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/tensor/row_span.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// Row t starts at data + t * stride, in elements. Offsets are 64-bit.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;
  __device__ T* row(std::int64_t t) const { return data + t * stride; }
};

template <typename T>
Rows<T> MakeRows(RowSpan<T> span) {
  return {span.data, span.stride};
}

// i / d for a number of units that nearly always has 32 bits, where division is several times
// cheaper.
__device__ __forceinline__ std::int64_t DivideUnits(std::int64_t i, int d) {
  if (i >> 32 == 0) return static_cast<unsigned>(i) / static_cast<unsigned>(d);
  return i / d;
}

// Whether `span` starts, and so do all of its rows, on a multiple of `bytes`.
template <typename T>
bool AlignedTo(int bytes, RowSpan<T> span) {
  const auto address = reinterpret_cast<std::uintptr_t>(span.data);
  return address % bytes == 0 &&
         (span.rows <= 1 || span.stride % (bytes / static_cast<std::int64_t>(sizeof(T))) == 0);
}

// Blocks of a grid on x for `items` ("rows" of argument `name`, say), or an error.
inline absl::Status CheckBlocks(const char* name, const char* items, std::int64_t count,
                                std::int64_t units_per_item, std::int64_t units_per_block,
                                std::int64_t& blocks) {
  constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
  if (count > kMaxBlocks * units_per_block / units_per_item) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d %s need a grid of more than %d blocks; split the call", name, count,
                        items, kMaxBlocks));
  }
  blocks = (count * units_per_item + units_per_block - 1) / units_per_block;
  return absl::OkStatus();
}

// Lets a kernel of `family` have more than 48 KiB of dynamic shared memory.
template <typename Kernel>
absl::Status AllowSharedMemory(const char* family, Kernel* kernel, int bytes) {
  if (bytes <= 48 * 1024) return absl::OkStatus();
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("%s: %d bytes of shared memory: %s", family, bytes,
                                             cudaGetErrorString(error)));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_ROWS_CUH_
