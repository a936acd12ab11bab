#include "model/gradient_accumulator.h"

#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/prepare_qkv/prepare_qkv.h"

namespace headwise {

GradientAccumulator::GradientAccumulator(const std::vector<Parameter*>& parameters,
                                         std::int64_t leaves)
    : leaves_(leaves) {
  HW_CHECK(leaves >= 1 && std::has_single_bit(static_cast<std::uint64_t>(leaves)))
      << leaves << " leaves must be a power of two";
  if (leaves == 1) return;
  const int levels = std::countr_zero(static_cast<std::uint64_t>(leaves));
  for (Parameter* parameter : parameters) {
    Slot slot;
    slot.parameter = parameter;
    slot.leaf = parameter->per_group_gradient.defined() ? parameter->per_group_gradient
                                                        : parameter->gradient;
    for (int i = 0; i < levels; ++i) {
      slot.partials.push_back(
          Tensor::Empty(slot.leaf.shape(), slot.leaf.dtype(), slot.leaf.device()));
    }
    slots_.push_back(std::move(slot));
  }
}

void GradientAccumulator::Add(ThreadPool& pool) {
  const std::int64_t leaf = next_;
  next_ = (next_ + 1) % leaves_;
  // The partial sums that this leaf completes, and the level at which their sum stands then.
  const int carries = std::countr_one(static_cast<std::uint64_t>(leaf));
  const bool last = leaf == leaves_ - 1;
  for (Slot& slot : slots_) {
    const RowSpan<float> sum = slot.leaf.Rows<float>();
    for (int level = 0; level < carries; ++level) {
      // The earlier leaves stand left.
      headwise::Add<float>(slot.partials[level].Rows<float>(), sum, sum, pool);
    }
    if (!last) {
      std::memcpy(slot.partials[carries].raw_data(), slot.leaf.raw_data(),
                  static_cast<std::size_t>(slot.leaf.bytes()));
    } else if (slot.parameter->per_group_gradient.defined()) {
      ReduceHeadNormGradient<float>(
          sum, absl::Span<float>(slot.parameter->gradient.data<float>(),
                                 static_cast<std::size_t>(slot.parameter->gradient.size())));
    }
  }
}

std::int64_t GradientAccumulator::buffer_bytes() const {
  std::int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    for (const Tensor& partial : slot.partials) bytes += partial.bytes();
  }
  return bytes;
}

}  // namespace headwise
