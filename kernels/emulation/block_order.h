// BlockOrder: which block of a launch is begun when. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_BLOCK_ORDER_H_
#define HEADWISE_KERNELS_EMULATION_BLOCK_ORDER_H_

#include <cstdint>
#include <numeric>

#include "kernels/emulation/emulation.h"

namespace headwise::emulation {

class BlockOrder {
 public:
  // Of `count` > 0 blocks. The seed matters for kRandom only.
  BlockOrder(std::int64_t count, ThreadOrder order, std::uint64_t seed)
      : count_(count), order_(order) {
    if (order != ThreadOrder::kRandom) return;
    // i -> i * step + start modulo count is a permutation if step and count share no factor.
    const auto n = static_cast<std::uint64_t>(count);
    start_ = static_cast<std::int64_t>(seed % n);
    step_ = static_cast<std::int64_t>((seed >> 20) % n);
    while (std::gcd(step_, count_) != 1) ++step_;
  }

  std::int64_t count() const { return count_; }
  // The block that comes at a position < count().
  std::int64_t At(std::int64_t position) const {
    using Wide = unsigned __int128;
    switch (order_) {
      case ThreadOrder::kForward:
        return position;
      case ThreadOrder::kReverse:
        return count_ - 1 - position;
      case ThreadOrder::kRandom:
        break;
    }
    return static_cast<std::int64_t>((Wide(position) * Wide(step_) + Wide(start_)) % Wide(count_));
  }

 private:
  std::int64_t count_;
  ThreadOrder order_;
  std::int64_t start_ = 0, step_ = 1;
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_BLOCK_ORDER_H_
