#include "model/decoder_options.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/attention/cuda.h"
#include "kernels/moe/cuda.h"
#include "model/config.h"
#include "model/qkv_preparation.h"

namespace headwise {
namespace {

// What there are CUDA kernels for.
absl::Status CheckCudaKernels(const ModelConfig& config, const DecoderOptions& options) {
  if (options.compute == DType::kF64) {
    return absl::InvalidArgumentError("double precision has no CUDA kernels: use F32 or BF16");
  }
  if (config.attention().unfused_qkv()) {
    const absl::Status unfused = CheckUnfusedQkvOnCuda(ResolveModelConfig(config));
    if (!unfused.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention.unfused_qkv: found true, expected false: ", unfused.message()));
    }
  }
  if (config.attention().head_dim() > kMostCudaHeadDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention.head_dim: found ", config.attention().head_dim(),
                     ", expected at most ", kMostCudaHeadDim, " with CUDA kernels"));
  }
  if (config.ffn().moe().num_experts() > kMostCudaExperts) {
    return absl::InvalidArgumentError(
        absl::StrCat("ffn.moe.num_experts: found ", config.ffn().moe().num_experts(),
                     ", expected at most ", kMostCudaExperts, " with CUDA kernels"));
  }
  return absl::OkStatus();
}

absl::Status CheckGpu(const DecoderOptions& options) {
  if (options.gpu == nullptr || options.launchers == nullptr) {
    return absl::InvalidArgumentError(
        "a decoder on cuda needs a GPU and launchers of its kernels (DecoderOptions)");
  }
  if (options.sharding != nullptr) {
    return absl::UnimplementedError("a decoder on cuda runs on one rank");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDecoderOptions(const ModelConfig& config, const DecoderOptions& options) {
  if (options.compute != DType::kF32 && options.compute != DType::kBF16 &&
      options.compute != DType::kF64) {
    return absl::InvalidArgumentError(
        absl::StrCat("activations cannot be ", Name(options.compute), ": F32, BF16 or F64"));
  }
  if (options.compute == DType::kF64 && options.gemm != GemmBackend::kContract) {
    return absl::InvalidArgumentError("double precision needs the contract GEMM");
  }
  if (options.device == Device::kCuda) HW_RETURN_IF_ERROR(CheckGpu(options));
  if (options.device == Device::kCuda || options.kernels == Kernels::kCudaEmulated) {
    return CheckCudaKernels(config, options);
  }
  return absl::OkStatus();
}

}  // namespace headwise
