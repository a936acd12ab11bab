#include "model/storage_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/base/check.h"

namespace headwise {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = std::int64_t{1} << 21;

// Rounds up to a multiple of an eighth of the next power of two (at least a page), so that nearly
// equal sizes share blocks and at most an eighth is wasted.
std::int64_t BlockBytes(std::int64_t bytes) {
  const auto ceiling = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1))));
  const std::int64_t step = std::max(kPage, ceiling / 8);
  return (std::max<std::int64_t>(bytes, 1) + step - 1) / step * step;
}

std::shared_ptr<void> HostBlock(std::int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::int64_t alignment = huge ? kHugePage : kPage;
  const std::int64_t padded = (bytes + alignment - 1) / alignment * alignment;
  void* block =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(padded));
  HW_CHECK(block != nullptr) << "out of memory allocating " << padded << " bytes";
#ifdef MADV_HUGEPAGE
  // A hint; where it is refused the block has ordinary pages.
  if (huge) (void)madvise(block, static_cast<std::size_t>(padded), MADV_HUGEPAGE);
#endif
  return std::shared_ptr<void>(block, std::free);
}

}  // namespace

struct StoragePool::State {
  State(Device device, BlockAllocator allocate) : device(device), allocate(std::move(allocate)) {}

  const Device device;
  const BlockAllocator allocate;
  std::multimap<std::int64_t, std::shared_ptr<void>> idle;  // by size
  std::int64_t in_use = 0;
  std::int64_t idle_bytes = 0;
  std::int64_t peak = 0;
  std::int64_t allocations = 0;

  void Trim() {
    idle.clear();
    idle_bytes = 0;
  }

  void Count(std::int64_t bytes) {
    in_use += bytes;
    peak = std::max(peak, in_use);
  }

  // The smallest idle block that fits without wasting more than half of it, or a new one.
  std::pair<std::shared_ptr<void>, std::int64_t> Take(std::int64_t bytes) {
    const std::int64_t wanted = BlockBytes(bytes);
    std::shared_ptr<void> block;
    std::int64_t size = wanted;
    const auto it = idle.lower_bound(wanted);
    if (it != idle.end() && it->first <= 2 * wanted) {
      size = it->first;
      block = std::move(it->second);
      idle.erase(it);
      idle_bytes -= size;
    } else {
      block = allocate(wanted);
      ++allocations;
    }
    Count(size);
    return {std::move(block), size};
  }

  void Return(std::shared_ptr<void> block, std::int64_t size) {
    idle.emplace(size, std::move(block));
    in_use -= size;
    idle_bytes += size;
  }
};

StoragePool::StoragePool() : StoragePool(Device::kCpu, HostBlock) {}
StoragePool::StoragePool(Device device, BlockAllocator allocate)
    : state_(std::make_shared<State>(device, std::move(allocate))) {}
StoragePool::~StoragePool() = default;

Tensor StoragePool::Empty(Shape shape, DType dtype, Device device) {
  if (device == Device::kMeta) {
    const std::int64_t bytes = BlockBytes(NumElements(shape) * SizeOf(dtype));
    state_->Count(bytes);
    std::shared_ptr<void> account(state_.get(),
                                  [state = state_, bytes](void*) { state->in_use -= bytes; });
    return Tensor::Meta(std::move(shape), dtype, std::move(account));
  }
  HW_CHECK(device == state_->device)
      << "a pool on " << state_->device << " has nothing on " << device;
  const auto [block, size] = state_->Take(NumElements(shape) * SizeOf(dtype));
  std::shared_ptr<void> storage(block.get(), [state = state_, block = block, size = size](void*) {
    state->Return(block, size);
  });
  return Tensor::FromStorage(std::move(storage), std::move(shape), dtype, device);
}

void StoragePool::Trim() { state_->Trim(); }
std::int64_t StoragePool::bytes_in_use() const { return state_->in_use; }
std::int64_t StoragePool::bytes_idle() const { return state_->idle_bytes; }
std::int64_t StoragePool::peak_bytes_in_use() const { return state_->peak; }
std::int64_t StoragePool::allocations() const { return state_->allocations; }

}  // namespace headwise
