#include "kernels/common/thread_scratch.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include "core/base/check.h"

namespace headwise {
namespace {

constexpr std::size_t kAlignment = 64;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// The i-th Take of a task always finds the i-th slot, so sizes settle after the first task.
struct Slot {
  std::unique_ptr<void, Free> memory;
  std::size_t capacity = 0;
};

struct ThreadSlots {
  std::vector<Slot> slots;
  std::size_t used = 0;
};

ThreadSlots& Slots() {
  thread_local ThreadSlots slots;
  return slots;
}

}  // namespace

ThreadScratch::ThreadScratch() : first_slot_(Slots().used) {}

ThreadScratch::~ThreadScratch() { Slots().used = first_slot_; }

void* ThreadScratch::TakeBytes(std::size_t bytes) {
  ThreadSlots& mine = Slots();
  if (mine.used == mine.slots.size()) mine.slots.emplace_back();
  Slot& slot = mine.slots[mine.used++];
#if defined(__SANITIZE_ADDRESS__)
  const bool fits = false;  // the exact size each time, so that an overrun is seen
#else
  const bool fits = bytes <= slot.capacity;
#endif
  if (!fits) {
    slot.capacity = (bytes + kAlignment) / kAlignment * kAlignment;
    slot.memory.reset(std::aligned_alloc(kAlignment, slot.capacity));
    HW_CHECK(slot.memory != nullptr) << "out of memory: " << slot.capacity << " bytes of scratch";
  }
  return slot.memory.get();
}

}  // namespace headwise
