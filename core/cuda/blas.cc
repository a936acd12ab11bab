#include "core/cuda/blas.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/cuda/cublas_library.cuh"
#include "core/cuda/cuda_status.h"
#include "core/cuda/device_memory.h"
#include "core/dtype/bf16.h"

namespace headwise {
namespace {

// What cuBLAS asks for on sm_90 (its documentation, cublasSetWorkspace); more than others need.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

template <typename T>
constexpr cudaDataType_t kTypeOf = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

int Size(std::int64_t size) {
  HW_CHECK(size >= 0 && size <= std::numeric_limits<int>::max()) << "a matrix of " << size;
  return static_cast<int>(size);
}

// The distance of rows, of which there may be one or none.
template <typename T>
int Stride(const RowSpan<T>& m) {
  const std::int64_t stride = m.rows > 1 ? m.stride : m.width;
  return Size(stride > 0 ? stride : 1);
}

}  // namespace

struct DeviceBlas::Impl {
  const CublasLibrary* cublas = nullptr;
  cublasHandle_t handle = nullptr;
  DeviceMemory workspace;
  CUstream_st* stream = nullptr;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (handle != nullptr) cublas->Destroy(handle);
  }

  // c [m, n] = op(a) op(b), the sum over `depth`. cuBLAS's matrices lie by columns, so it is asked
  // for c^T = op(b)^T op(a)^T, and what is a row here is a column there.
  template <typename In, typename Out>
  absl::Status Multiply(bool transpose_a, bool transpose_b, std::int64_t depth,
                        const RowSpan<const In>& a, const RowSpan<const In>& b,
                        const RowSpan<Out>& c) const {
    if (c.rows == 0 || c.width == 0) return absl::OkStatus();
    if (depth == 0) {
      return internal::CudaStatus(
          cudaMemset2DAsync(c.data, static_cast<std::size_t>(Stride(c)) * sizeof(Out), 0,
                            static_cast<std::size_t>(c.width) * sizeof(Out),
                            static_cast<std::size_t>(c.rows), stream),
          "cudaMemset2DAsync");
    }
    const float one = 1, zero = 0;
    return cublas->Status(
        cublas->GemmEx(handle, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                       transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, Size(c.width), Size(c.rows),
                       Size(depth), &one, b.data, kTypeOf<In>, Stride(b), a.data, kTypeOf<In>,
                       Stride(a), &zero, c.data, kTypeOf<Out>, Stride(c), CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  }
};

DeviceBlas::DeviceBlas(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceBlas::DeviceBlas(DeviceBlas&& other) noexcept = default;
DeviceBlas& DeviceBlas::operator=(DeviceBlas&& other) noexcept = default;
DeviceBlas::~DeviceBlas() = default;

absl::StatusOr<DeviceBlas> DeviceBlas::Create(const CudaStream& stream) {
  HW_ASSIGN_OR_RETURN(const CublasLibrary* const cublas, CublasLibrary::Open());
  auto impl = std::make_unique<Impl>();
  impl->cublas = cublas;
  HW_RETURN_IF_ERROR(cublas->Status(cublas->Create(&impl->handle), "cublasCreate"));
  HW_ASSIGN_OR_RETURN(impl->workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  impl->stream = stream.get();
  // In this order: the first resets the second.
  HW_RETURN_IF_ERROR(
      cublas->Status(cublas->SetStream(impl->handle, impl->stream), "cublasSetStream"));
  HW_RETURN_IF_ERROR(
      cublas->Status(cublas->SetWorkspace(impl->handle, impl->workspace.data(), kWorkspaceBytes),
                     "cublasSetWorkspace"));
  HW_RETURN_IF_ERROR(cublas->Status(
      cublas->SetAtomicsMode(impl->handle, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode"));
  const auto math = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  HW_RETURN_IF_ERROR(cublas->Status(cublas->SetMathMode(impl->handle, math), "cublasSetMathMode"));
  return DeviceBlas(std::move(impl));
}

template <typename In, typename Out>
absl::Status DeviceBlas::LinearForward(RowSpan<const In> x, RowSpan<const In> w,
                                       RowSpan<Out> y) const {
  HW_CHECK(x.width == w.width && y.rows == x.rows && y.width == w.rows);
  return impl_->Multiply(false, true, x.width, x, w, y);
}

template <typename In, typename Out>
absl::Status DeviceBlas::LinearBackwardInput(RowSpan<const In> dy, RowSpan<const In> w,
                                             RowSpan<Out> dx) const {
  HW_CHECK(dy.width == w.rows && dx.rows == dy.rows && dx.width == w.width);
  return impl_->Multiply(false, false, dy.width, dy, w, dx);
}

template <typename T>
absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const T> dy, RowSpan<const T> x,
                                              RowSpan<float> dw) const {
  HW_CHECK(dy.rows == x.rows && dw.rows == dy.width && dw.width == x.width);
  return impl_->Multiply(true, false, dy.rows, dy, x, dw);
}

#define HW_INSTANTIATE(In, Out)                                                               \
  template absl::Status DeviceBlas::LinearForward(RowSpan<const In>, RowSpan<const In>,       \
                                                  RowSpan<Out>) const;                        \
  template absl::Status DeviceBlas::LinearBackwardInput(RowSpan<const In>, RowSpan<const In>, \
                                                        RowSpan<Out>) const
HW_INSTANTIATE(float, float);
HW_INSTANTIATE(BFloat16, BFloat16);
HW_INSTANTIATE(BFloat16, float);
#undef HW_INSTANTIATE
template absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const float>, RowSpan<const float>,
                                                       RowSpan<float>) const;
template absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const BFloat16>,
                                                       RowSpan<const BFloat16>,
                                                       RowSpan<float>) const;

}  // namespace headwise
