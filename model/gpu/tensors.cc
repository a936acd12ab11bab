#include "model/gpu/tensors.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "model/report/progress.h"

namespace headwise {

BlockAllocator BlocksOf(Gpu& gpu) {
  return [&gpu](std::int64_t bytes) {
    absl::StatusOr<std::shared_ptr<void>> block = gpu.Allocate(bytes);
    HW_CHECK(block.ok()) << "no room on the GPU for " << FormatBytes(static_cast<double>(bytes))
                         << " more (" << block.status()
                         << "); try fewer tokens at a time: more training.micro_batches, a smaller "
                            "training.batch_size or training.sequence_length";
    return *std::move(block);
  };
}

absl::Status CheckFreeMemory(Gpu& gpu, const std::string& what, std::int64_t bytes) {
  HW_ASSIGN_OR_RETURN(const std::int64_t free, gpu.FreeMemory());
  if (bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("memory: ", what, " needs ", FormatBytes(static_cast<double>(bytes)), ", found ",
                   FormatBytes(static_cast<double>(free)), " free on ", gpu.Describe()));
}

Tensor EmptyOnGpu(Gpu& gpu, Shape shape, DType dtype) {
  std::shared_ptr<void> block = BlocksOf(gpu)(NumElements(shape) * SizeOf(dtype));
  return Tensor::FromStorage(std::move(block), std::move(shape), dtype, Device::kCuda);
}

Tensor ZerosOnGpu(Gpu& gpu, Shape shape, DType dtype) {
  Tensor zeros = EmptyOnGpu(gpu, std::move(shape), dtype);
  const absl::Status filled = gpu.Fill(zeros.raw_data(), 0, zeros.bytes());
  HW_CHECK(filled.ok()) << filled;
  return zeros;
}

absl::Status Upload(Gpu& gpu, const Tensor& from, const Tensor& to) {
  HW_CHECK(from.device() == Device::kCpu && to.device() == Device::kCuda) << "Upload";
  HW_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype())
      << "Upload: " << from.dtype() << " " << ToString(from.shape()) << " to " << to.dtype() << " "
      << ToString(to.shape());
  return gpu.Upload(to.raw_data(), from.raw_data(), from.bytes());
}

absl::StatusOr<Tensor> Download(Gpu& gpu, const Tensor& from) {
  HW_CHECK(from.device() == Device::kCuda) << "Download";
  Tensor to = Tensor::Empty(from.shape(), from.dtype(), Device::kCpu);
  HW_RETURN_IF_ERROR(gpu.Download(to.raw_data(), from.raw_data(), from.bytes()));
  return to;
}

absl::StatusOr<std::vector<Tensor>> DownloadValues(Gpu& gpu,
                                                   absl::Span<Parameter* const> parameters) {
  std::vector<Tensor> values;
  for (const Parameter* parameter : parameters) {
    HW_ASSIGN_OR_RETURN(Tensor value, Download(gpu, parameter->value));
    values.push_back(std::move(value));
  }
  return values;
}

absl::Status UploadValues(Gpu& gpu, absl::Span<const Tensor> values,
                          absl::Span<Parameter* const> parameters) {
  HW_CHECK_EQ(values.size(), parameters.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    HW_RETURN_IF_ERROR(Upload(gpu, values[i], parameters[i]->value));
  }
  return absl::OkStatus();
}

}  // namespace headwise
