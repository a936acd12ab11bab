#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cuda/device_memory.h"
#include "kernels/muon_step/batched_products.h"

namespace headwise {
namespace {

// What cuBLAS asks for on sm_90 (its documentation, cublasSetWorkspace).
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

struct Cublas {
  decltype(&cublasCreate) create;
  decltype(&cublasDestroy) destroy;
  decltype(&cublasSetStream) set_stream;
  decltype(&cublasSetWorkspace) set_workspace;
  decltype(&cublasGemmStridedBatchedEx) multiply;
  decltype(&cublasGetStatusString) text;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<Cublas> Open() {
  std::string tried;
  for (const int version : {CUBLAS_VER_MAJOR, 13, 12}) {
    const std::string name = absl::StrCat("libcublas.so.", version);
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    Cublas cublas = {};
    if (library != nullptr && Find(library, "cublasCreate_v2", &cublas.create) &&
        Find(library, "cublasDestroy_v2", &cublas.destroy) &&
        Find(library, "cublasSetStream_v2", &cublas.set_stream) &&
        Find(library, "cublasSetWorkspace_v2", &cublas.set_workspace) &&
        Find(library, "cublasGemmStridedBatchedEx", &cublas.multiply) &&
        Find(library, "cublasGetStatusString", &cublas.text)) {
      return cublas;  // stays open
    }
    absl::StrAppend(&tried, " ", name);
  }
  return absl::NotFoundError(absl::StrCat("no cuBLAS: looked for", tried));
}

class CublasProducts final : public BatchedProducts {
 public:
  explicit CublasProducts(const Cublas& cublas) : cublas_(cublas) {}
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;
  ~CublasProducts() override {
    if (handle_ != nullptr) cublas_.destroy(handle_);
  }

  absl::Status Init() {
    HW_RETURN_IF_ERROR(Check(cublas_.create(&handle_), "cublasCreate"));
    HW_ASSIGN_OR_RETURN(workspace_, DeviceMemory::Allocate(kWorkspaceBytes));
    return absl::OkStatus();
  }

  absl::Status Multiply(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k,
                        float alpha, const MatrixBatch<const BFloat16>& a,
                        const MatrixBatch<const BFloat16>& b, float beta,
                        const MatrixBatch<BFloat16>& c, std::int64_t count,
                        CUstream_st* stream) override {
    // In this order: the first resets the second.
    HW_RETURN_IF_ERROR(Check(cublas_.set_stream(handle_, stream), "cublasSetStream"));
    HW_RETURN_IF_ERROR(Check(cublas_.set_workspace(handle_, workspace_.data(), kWorkspaceBytes),
                             "cublasSetWorkspace"));
    return Check(cublas_.multiply(handle_, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
                                  static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                                  &alpha, a.data, CUDA_R_16BF, static_cast<int>(a.stride), a.next,
                                  b.data, CUDA_R_16BF, static_cast<int>(b.stride), b.next, &beta,
                                  c.data, CUDA_R_16BF, static_cast<int>(c.stride), c.next,
                                  static_cast<int>(count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "cublasGemmStridedBatchedEx");
  }

 private:
  absl::Status Check(cublasStatus_t status, const char* what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what, ": ", cublas_.text(status)));
  }

  const Cublas cublas_;
  cublasHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchedProducts>> BatchedProducts::Create() {
  HW_ASSIGN_OR_RETURN(const Cublas cublas, Open());
  auto products = std::make_unique<CublasProducts>(cublas);
  HW_RETURN_IF_ERROR(products->Init());
  return products;
}

}  // namespace headwise
