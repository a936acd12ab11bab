#include <cstdint>
#include <memory>

#include "core/base/status_macros.h"
#include "core/cuda/cublas_library.cuh"
#include "core/cuda/device_memory.h"
#include "kernels/muon_step/batched_products.h"

namespace headwise {
namespace {

// What cuBLAS asks for on sm_90 (its documentation, cublasSetWorkspace).
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

class CublasProducts final : public BatchedProducts {
 public:
  explicit CublasProducts(const CublasLibrary& cublas) : cublas_(cublas) {}
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;
  ~CublasProducts() override {
    if (handle_ != nullptr) cublas_.Destroy(handle_);
  }

  absl::Status Init() {
    HW_RETURN_IF_ERROR(cublas_.Status(cublas_.Create(&handle_), "cublasCreate"));
    HW_ASSIGN_OR_RETURN(workspace_, DeviceMemory::Allocate(kWorkspaceBytes));
    return absl::OkStatus();
  }

  absl::Status Multiply(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k,
                        float alpha, const MatrixBatch<const BFloat16>& a,
                        const MatrixBatch<const BFloat16>& b, float beta,
                        const MatrixBatch<BFloat16>& c, std::int64_t count,
                        CUstream_st* stream) override {
    // In this order: the first resets the second.
    HW_RETURN_IF_ERROR(cublas_.Status(cublas_.SetStream(handle_, stream), "cublasSetStream"));
    HW_RETURN_IF_ERROR(cublas_.Status(
        cublas_.SetWorkspace(handle_, workspace_.data(), kWorkspaceBytes), "cublasSetWorkspace"));
    return cublas_.Status(
        cublas_.GemmStridedBatchedEx(
            handle_, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(m),
            static_cast<int>(n), static_cast<int>(k), &alpha, a.data, CUDA_R_16BF,
            static_cast<int>(a.stride), a.next, b.data, CUDA_R_16BF, static_cast<int>(b.stride),
            b.next, &beta, c.data, CUDA_R_16BF, static_cast<int>(c.stride), c.next,
            static_cast<int>(count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
  }

 private:
  const CublasLibrary& cublas_;
  cublasHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchedProducts>> BatchedProducts::Create() {
  HW_ASSIGN_OR_RETURN(const CublasLibrary* const cublas, CublasLibrary::Open());
  auto products = std::make_unique<CublasProducts>(*cublas);
  HW_RETURN_IF_ERROR(products->Init());
  return products;
}

}  // namespace headwise
