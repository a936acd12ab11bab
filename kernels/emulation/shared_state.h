// SharedState: the shared memory of one block at a time: where its arrays lie, and which bytes the
// block has written. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_
#define HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_

#include <cstdint>
#include <cstring>

#include "kernels/emulation/block_memory.h"

namespace headwise::emulation {

class SharedState {
 public:
  void StartLaunch(std::int64_t dynamic_bytes) {
    dynamic_bytes_ = dynamic_bytes;
    used_ = Aligned(dynamic_bytes);
    arrays_ = 0;
  }
  void StartBlock() { std::memset(written_, 0, used_); }

  // The offset of the static array with this key, new to the launch or not; -1 if it does not fit.
  std::int64_t Static(const void* key, std::int64_t bytes) {
    for (int i = 0; i < arrays_; ++i) {
      if (array_[i].key == key) return array_[i].offset;
    }
    if (arrays_ == kMostArrays || used_ + bytes > kMostShared) return -1;
    const std::int64_t offset = used_;
    array_[arrays_++] = {key, offset};
    used_ += Aligned(bytes);
    std::memset(written_ + offset, 0, bytes);
    return offset;
  }

  std::int64_t dynamic_bytes() const { return dynamic_bytes_; }
  std::int64_t static_bytes() const { return used_ - Aligned(dynamic_bytes_); }

  bool Written(std::int64_t offset, int bytes) const {
    return std::memchr(written_ + offset, 0, bytes) == nullptr;
  }
  void Write(std::int64_t offset, int bytes) { std::memset(written_ + offset, 1, bytes); }

 private:
  static constexpr int kMostArrays = 64;
  static constexpr std::int64_t Aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

  struct Array {
    const void* key;
    std::int64_t offset;
  };

  std::int64_t dynamic_bytes_ = 0;
  std::int64_t used_ = 0;
  int arrays_ = 0;
  Array array_[kMostArrays];
  unsigned char written_[kMostShared] = {};
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_SHARED_STATE_H_
