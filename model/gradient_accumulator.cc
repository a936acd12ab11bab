#include "model/gradient_accumulator.h"

#include <bit>
#include <cstring>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/gpu/tensors.h"

namespace headwise {
namespace {

absl::Span<float> Elements(const Tensor& tensor) {
  return absl::Span<float>(tensor.data<float>(), static_cast<std::size_t>(tensor.size()));
}

struct OnCpu {
  ThreadPool& pool;

  // sum += earlier, which stands left.
  absl::Status Add(const Tensor& earlier, const Tensor& sum) const {
    headwise::Add<float>(earlier.Rows<float>(), sum.Rows<float>(), sum.Rows<float>(), pool);
    return absl::OkStatus();
  }
  absl::Status Copy(const Tensor& to, const Tensor& from) const {
    std::memcpy(to.raw_data(), from.raw_data(), static_cast<std::size_t>(from.bytes()));
    return absl::OkStatus();
  }
  absl::Status ReduceGroups(const Tensor& per_group, const Tensor& gradient) const {
    ReduceHeadNormGradient<float>(per_group.Rows<float>(), Elements(gradient));
    return absl::OkStatus();
  }
};

struct OnGpu {
  Gpu& gpu;
  const KernelLaunchers& launchers;

  absl::Status Add(const Tensor& earlier, const Tensor& sum) const {
    return launchers.f32.Add(earlier.Rows<const float>(), sum.Rows<const float>(),
                             sum.Rows<float>(), gpu.stream());
  }
  absl::Status Copy(const Tensor& to, const Tensor& from) const {
    return gpu.Copy(to.raw_data(), from.raw_data(), from.bytes());
  }
  absl::Status ReduceGroups(const Tensor& per_group, const Tensor& gradient) const {
    return launchers.ReduceHeadNormGradient(per_group.Rows<const float>(), Elements(gradient),
                                            gpu.stream());
  }
};

}  // namespace

GradientAccumulator::GradientAccumulator(const std::vector<Parameter*>& parameters,
                                         std::int64_t leaves)
    : leaves_(leaves) {
  MakeSlots(parameters);
}

GradientAccumulator::GradientAccumulator(const std::vector<Parameter*>& parameters,
                                         std::int64_t leaves, Gpu& gpu,
                                         const KernelLaunchers& launchers)
    : leaves_(leaves), gpu_(&gpu), launchers_(&launchers) {
  MakeSlots(parameters);
}

void GradientAccumulator::MakeSlots(const std::vector<Parameter*>& parameters) {
  HW_CHECK(leaves_ >= 1 && std::has_single_bit(static_cast<std::uint64_t>(leaves_)))
      << leaves_ << " leaves must be a power of two";
  for (const Parameter* parameter : parameters) {
    HW_CHECK(parameter->gradient.defined())
        << "parameter " << parameter->name << " has no gradient, as in a model for inference";
  }
  if (leaves_ == 1) return;
  const int levels = std::countr_zero(static_cast<std::uint64_t>(leaves_));
  for (Parameter* parameter : parameters) {
    Slot slot;
    slot.parameter = parameter;
    slot.leaf = parameter->per_group_gradient.defined() ? parameter->per_group_gradient
                                                        : parameter->gradient;
    const Shape& shape = slot.leaf.shape();
    const DType dtype = slot.leaf.dtype();
    for (int i = 0; i < levels; ++i) {
      slot.partials.push_back(gpu_ != nullptr ? EmptyOnGpu(*gpu_, shape, dtype)
                                              : Tensor::Empty(shape, dtype, slot.leaf.device()));
    }
    slots_.push_back(std::move(slot));
  }
}

template <typename On>
absl::Status GradientAccumulator::TakeLeaf(const On& on) {
  const std::int64_t leaf = next_;
  next_ = (next_ + 1) % leaves_;
  // The partial sums that this leaf completes, and the level at which their sum stands then.
  const int carries = std::countr_one(static_cast<std::uint64_t>(leaf));
  const bool last = leaf == leaves_ - 1;
  for (Slot& slot : slots_) {
    for (int level = 0; level < carries; ++level) {
      HW_RETURN_IF_ERROR(on.Add(slot.partials[level], slot.leaf));
    }
    if (!last) {
      HW_RETURN_IF_ERROR(on.Copy(slot.partials[carries], slot.leaf));
    } else if (slot.parameter->per_group_gradient.defined()) {
      HW_RETURN_IF_ERROR(on.ReduceGroups(slot.leaf, slot.parameter->gradient));
    }
  }
  return absl::OkStatus();
}

void GradientAccumulator::Add(ThreadPool& pool) {
  HW_CHECK(gpu_ == nullptr) << "Enqueue() adds gradients on a GPU";
  const absl::Status added = TakeLeaf(OnCpu{pool});
  HW_CHECK(added.ok()) << added;
}

absl::Status GradientAccumulator::Enqueue() {
  HW_CHECK(gpu_ != nullptr) << "Add() adds gradients on the CPU";
  return TakeLeaf(OnGpu{*gpu_, *launchers_});
}

std::int64_t GradientAccumulator::buffer_bytes() const {
  std::int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    for (const Tensor& partial : slot.partials) bytes += partial.bytes();
  }
  return bytes;
}

}  // namespace headwise
