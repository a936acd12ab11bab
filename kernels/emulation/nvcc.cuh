// cuda_kernel.h as nvcc sees it: CUDA's own names, and thin inlines for what the emulation needs to
// see of a kernel.
#ifndef HEADWISE_KERNELS_EMULATION_NVCC_CUH_
#define HEADWISE_KERNELS_EMULATION_NVCC_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "absl/status/status.h"

namespace headwise::HW_CUDA_NAMESPACE {

namespace internal {

// The type that moves N bytes in one instruction.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = unsigned char;
};
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = unsigned;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <typename T>
using Word = typename WordOf<sizeof(T)>::Type;

// The same, of one integer. A copied uint4 nvcc takes apart into stores of its members, which it
// joins again in some kernels only; of an integer it makes one store.
template <typename T>
using StoredWord =
    std::conditional_t<sizeof(T) == 16, unsigned __int128,
                       std::conditional_t<sizeof(T) == 8, unsigned long long, Word<T>>>;

// By value: of a reference to memory nvcc makes a copy byte by byte.
template <typename To, typename From>
__device__ __forceinline__ To BitCast(From from) {
  return __builtin_bit_cast(To, from);
}

template <typename T>
__device__ __forceinline__ const Word<T>* AsWord(const T* p) {
  return reinterpret_cast<const Word<T>*>(p);
}
template <typename T>
__device__ __forceinline__ Word<T>* AsWord(T* p) {
  return reinterpret_cast<Word<T>*>(p);
}

}  // namespace internal

template <typename T>
__device__ __forceinline__ T LoadGlobal(const T* p) {
  return internal::BitCast<T>(*internal::AsWord(p));
}
template <typename T>
__device__ __forceinline__ void StoreGlobal(T* p, const std::type_identity_t<T>& value) {
  using Stored = internal::StoredWord<T>;
  *reinterpret_cast<Stored*>(p) = internal::BitCast<Stored>(value);
}
template <typename T>
__device__ __forceinline__ T LoadStreaming(const T* p) {
  return internal::BitCast<T>(__ldcs(internal::AsWord(p)));
}
template <typename T>
__device__ __forceinline__ void StoreStreaming(T* p, const std::type_identity_t<T>& value) {
  __stcs(internal::AsWord(p), internal::BitCast<internal::Word<T>>(value));
}
template <typename T>
__device__ __forceinline__ T LoadCached(const T* p) {
  return internal::BitCast<T>(__ldg(internal::AsWord(p)));
}

// Shared memory by element, or by wider values.
template <typename T>
class SharedArray {
 public:
  __device__ __forceinline__ explicit SharedArray(T* data) : data_(data) {}

  __device__ __forceinline__ T& operator[](long long i) const { return data_[i]; }
  template <typename U>
  __device__ __forceinline__ U Load(long long i) const {
    return internal::BitCast<U>(*reinterpret_cast<const internal::Word<U>*>(data_ + i));
  }
  template <typename U>
  __device__ __forceinline__ void Store(long long i, const U& value) const {
    *reinterpret_cast<internal::Word<U>*>(data_ + i) = internal::BitCast<internal::Word<U>>(value);
  }

 private:
  T* data_;
};

// d += a b, matrices of the warp, of halves with fp32 sums: a [16, 16], b [16, 8], d [16, 8]. Which
// elements a lane has: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", and
// tensor_core.h. Every lane of a whole warp must call it.
__device__ __forceinline__ void MultiplyHalves(const unsigned (&a)[4], const unsigned (&b)[2],
                                               float (&d)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

inline absl::Status LaunchStatus(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(std::string(kernel) + ": launch failed: " + cudaGetErrorString(error));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#define HW_SHARED(T, name, count)                     \
  __shared__ __align__(16) T name##_storage[(count)]; \
  const ::headwise::HW_CUDA_NAMESPACE::SharedArray<T> name(name##_storage)

#define HW_DYNAMIC_SHARED(T, name, byte_offset)                            \
  extern __shared__ __align__(16) unsigned char headwise_dynamic_shared[]; \
  const ::headwise::HW_CUDA_NAMESPACE::SharedArray<T> name(                \
      reinterpret_cast<T*>(headwise_dynamic_shared + (byte_offset)))

#define HW_LAUNCH(kernel, grid, block, dynamic_shared_bytes, stream, ...) \
  (kernel)<<<(grid), (block), (dynamic_shared_bytes), (stream)>>>(__VA_ARGS__)

#endif  // HEADWISE_KERNELS_EMULATION_NVCC_CUH_
