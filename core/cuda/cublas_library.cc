#include "core/cuda/cublas_library.cuh"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace headwise {
namespace {

// The functions' types are those of this toolkit.
template <typename Function>
constexpr bool kIs = true;
static_assert(kIs<decltype(static_cast<decltype(CublasLibrary::GemmEx)>(&cublasGemmEx))>);
static_assert(kIs<decltype(static_cast<decltype(CublasLibrary::GemmStridedBatchedEx)>(
                  &cublasGemmStridedBatchedEx))>);

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Names with _v2 are what cublas_v2.h makes of those without.
bool FindAll(void* library, CublasLibrary* cublas) {
  return Find(library, "cublasCreate_v2", &cublas->Create) &&
         Find(library, "cublasDestroy_v2", &cublas->Destroy) &&
         Find(library, "cublasSetStream_v2", &cublas->SetStream) &&
         Find(library, "cublasSetWorkspace_v2", &cublas->SetWorkspace) &&
         Find(library, "cublasSetAtomicsMode", &cublas->SetAtomicsMode) &&
         Find(library, "cublasSetMathMode", &cublas->SetMathMode) &&
         Find(library, "cublasGetStatusString", &cublas->GetStatusString) &&
         Find(library, "cublasGemmEx", &cublas->GemmEx) &&
         Find(library, "cublasGemmStridedBatchedEx", &cublas->GemmStridedBatchedEx);
}

absl::StatusOr<const CublasLibrary*> OpenFirst() {
  std::string tried;
  int last = 0;
  for (const int version : {CUBLAS_VER_MAJOR, 13, 12}) {
    if (version == last) continue;
    last = version;
    const std::string name = absl::StrCat("libcublas.so.", version);
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open
    auto cublas = std::make_unique<CublasLibrary>();
    if (library != nullptr && FindAll(library, cublas.get())) return cublas.release();
    const char* const why = library == nullptr ? dlerror() : "a function is missing";
    absl::StrAppend(&tried, tried.empty() ? "" : "; ", name, ": ", why);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no cuBLAS (", tried,
                   "); try LD_LIBRARY_PATH=DIR with the libraries of a CUDA toolkit, 12 or newer"));
}

}  // namespace

absl::StatusOr<const CublasLibrary*> CublasLibrary::Open() {
  static const auto& opened = *new absl::StatusOr<const CublasLibrary*>(OpenFirst());
  return opened;
}

absl::Status CublasLibrary::Status(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", GetStatusString(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  if (status == CUBLAS_STATUS_NOT_INITIALIZED) return absl::FailedPreconditionError(message);
  return absl::InternalError(message);
}

}  // namespace headwise
