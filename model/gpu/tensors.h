// Tensors in the memory of a Gpu, and copies of them on the host.
//
//   const Tensor x = EmptyOnGpu(gpu, {tokens, dim}, DType::kBF16);
//   HW_RETURN_IF_ERROR(Upload(gpu, host, x));
//   HW_ASSIGN_OR_RETURN(const Tensor y, Download(gpu, x));       // on Device::kCpu
//
//   // Of a decoder's parameters, for a checkpoint:
//   HW_ASSIGN_OR_RETURN(const std::vector<Tensor> values, DownloadValues(gpu, parameters));
//   HW_RETURN_IF_ERROR(UploadValues(gpu, values, parameters));   // then decoder.WeightsChanged()
//
// Copies with the host wait for the GPU. Too little memory fails an HW_CHECK.
#ifndef HEADWISE_MODEL_GPU_TENSORS_H_
#define HEADWISE_MODEL_GPU_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "model/storage_pool.h"
#include "optim/parameter.h"

namespace headwise {

// Makes the blocks of a StoragePool on Device::kCuda. The Gpu must outlive them.
BlockAllocator BlocksOf(Gpu& gpu);

// kResourceExhausted, with figures, if `bytes` are more than the GPU has left: "memory: muse_17m
// needs 12.1 GiB, found 4.0 GiB free on NVIDIA ...".
absl::Status CheckFreeMemory(Gpu& gpu, const std::string& what, std::int64_t bytes);

Tensor EmptyOnGpu(Gpu& gpu, Shape shape, DType dtype);
Tensor ZerosOnGpu(Gpu& gpu, Shape shape, DType dtype);

// `to` <- `from`, of the same shape and dtype (checked).
absl::Status Upload(Gpu& gpu, const Tensor& from, const Tensor& to);
// The elements of `from` in memory of their own.
absl::StatusOr<Tensor> Download(Gpu& gpu, const Tensor& from);

// The parameters' values, in their order.
absl::StatusOr<std::vector<Tensor>> DownloadValues(Gpu& gpu,
                                                   absl::Span<Parameter* const> parameters);
absl::Status UploadValues(Gpu& gpu, absl::Span<const Tensor> values,
                          absl::Span<Parameter* const> parameters);

}  // namespace headwise

#endif  // HEADWISE_MODEL_GPU_TENSORS_H_
