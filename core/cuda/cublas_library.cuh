// cuBLAS, opened when it is first needed and not before: a program that links this starts on a
// machine without cuBLAS, and says what is missing when products are asked for.
//
//   HW_ASSIGN_OR_RETURN(const CublasLibrary* cublas, CublasLibrary::Open());
//   HW_RETURN_IF_ERROR(cublas->Status(cublas->Create(&handle), "cublasCreate"));
//
// Looked for, as the dynamic loader does (LD_LIBRARY_PATH, then the toolkit that the program was
// built with, then the system): libcublas.so of the toolkit's major version, then of 13 and 12. The
// functions below are the same in these.
#ifndef HEADWISE_CORE_CUDA_CUBLAS_LIBRARY_CUH_
#define HEADWISE_CORE_CUDA_CUBLAS_LIBRARY_CUH_

#include <cublas_v2.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headwise {

struct CublasLibrary {
  // Lives as long as the process. kFailedPrecondition, naming what was looked for, if there is none.
  static absl::StatusOr<const CublasLibrary*> Open();

  // "WHAT: cuBLAS's message". kResourceExhausted if memory ran out, kFailedPrecondition if no device
  // can be used, else kInternal.
  absl::Status Status(cublasStatus_t status, const char* what) const;

  decltype(&cublasCreate) Create;
  decltype(&cublasDestroy) Destroy;
  decltype(&cublasSetStream) SetStream;
  decltype(&cublasSetWorkspace) SetWorkspace;
  decltype(&cublasSetAtomicsMode) SetAtomicsMode;
  decltype(&cublasSetMathMode) SetMathMode;
  decltype(&cublasGetStatusString) GetStatusString;
  // One of two overloads in C++ each.
  cublasStatus_t (*GemmEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void*, const void*, cudaDataType, int, const void*, cudaDataType,
                           int, const void*, void*, cudaDataType, int, cublasComputeType_t,
                           cublasGemmAlgo_t);
  cublasStatus_t (*GemmStridedBatchedEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                         int, int, const void*, const void*, cudaDataType, int,
                                         long long, const void*, cudaDataType, int, long long,
                                         const void*, void*, cudaDataType, int, long long, int,
                                         cublasComputeType_t, cublasGemmAlgo_t);
};

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_CUBLAS_LIBRARY_CUH_
