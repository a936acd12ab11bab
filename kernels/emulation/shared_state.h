// SharedState: the shared memory of one block at a time: where its arrays lie, and which bytes the
// block has written. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_
#define HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_

#include <algorithm>
#include <cstdint>

#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {

inline constexpr std::int64_t kMostShared = 227 << 10;
// What a block may have without asking: all that is static, or the dynamic bytes of a launch.
inline constexpr std::int64_t kMostSharedUnasked = 48 << 10;

class SharedState {
 public:
  void StartLaunch(std::int64_t dynamic_bytes) {
    dynamic_bytes_ = dynamic_bytes;
    used_ = Aligned(dynamic_bytes);
    arrays_ = 0;
  }
  void StartBlock() {
    const TsanIgnore ignore;  // memset is watched
    std::fill_n(written_, (used_ + 63) / 64, 0);
  }

  // The offset of the static array with this key, new to the launch or not; -1 if it does not fit,
  // be it with the others that are static or with all.
  std::int64_t Static(const void* key, std::int64_t bytes) {
    for (int i = 0; i < arrays_; ++i) {
      if (array_[i].key == key) return array_[i].offset;
    }
    if (arrays_ == kMostArrays || bytes > kMostShared - used_ ||
        bytes > kMostSharedUnasked - static_bytes()) {
      return -1;
    }
    const std::int64_t offset = used_;
    array_[arrays_++] = {key, offset};
    used_ += Aligned(bytes);
    // Beyond what StartBlock saw, nothing of this launch is written; something of the last may be.
    const TsanIgnore ignore;
    const std::int64_t first = (offset + 63) / 64, last = (used_ + 63) / 64;
    if (offset % 64 != 0) written_[offset / 64] &= (std::uint64_t{1} << (offset % 64)) - 1;
    if (last > first) std::fill_n(written_ + first, last - first, 0);
    return offset;
  }

  std::int64_t dynamic_bytes() const { return dynamic_bytes_; }
  std::int64_t static_bytes() const { return used_ - Aligned(dynamic_bytes_); }

  // For accesses as TouchShared has checked them: at most 16 bytes, aligned, and so in one word.
  bool Written(std::int64_t offset, int bytes) const {
    return (written_[offset / 64] & Bits(offset, bytes)) == Bits(offset, bytes);
  }
  void Write(std::int64_t offset, int bytes) { written_[offset / 64] |= Bits(offset, bytes); }

 private:
  static constexpr int kMostArrays = 64;
  static constexpr std::int64_t Aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }
  static constexpr std::uint64_t Bits(std::int64_t offset, int bytes) {
    return ((std::uint64_t{1} << bytes) - 1) << (offset % 64);
  }

  struct Array {
    const void* key;
    std::int64_t offset;
  };

  std::int64_t dynamic_bytes_ = 0;
  std::int64_t used_ = 0;
  int arrays_ = 0;
  Array array_[kMostArrays];
  std::uint64_t written_[kMostShared / 64] = {};  // a bit for each byte
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_
