// What device code calls in the emulation's runtime. Internal to kernels/emulation: kernels include
// cuda_kernel.h, tests emulation.h.
//
// The functions here are called by a running CUDA thread. One that breaks a rule is reported
// (finding.h) and does not return.
#ifndef HEADWISE_KERNELS_EMULATION_RUNTIME_H_
#define HEADWISE_KERNELS_EMULATION_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "kernels/emulation/dim3.h"

namespace headwise::emulation {

// Where in a kernel something happens.
using Site = std::source_location;

enum class Use : std::uint8_t { kLoad, kStore, kAtomic };

// A value that one instruction can move.
template <typename T>
concept Movable =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
    (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);

// Global memory at `p` is about to be touched: checks, counts, and may let other threads run first.
void TouchGlobal(const void* p, int bytes, Use use, Site site);

// Shared memory of the block. Static: the same for every thread that comes with this `key`.
// Dynamic: from byte_offset to the end.
struct SharedRange {
  char* data;
  std::int64_t bytes;
};
SharedRange StaticShared(const void* key, std::int64_t bytes, Site site);
SharedRange DynamicShared(std::int64_t byte_offset, int alignment, Site site);
// Bytes [offset, offset + bytes) of the range are about to be touched.
void TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use, Site site);
void Barrier(Site site);

enum class WarpOperation : std::uint8_t { kSync, kShuffle, kBallot, kMultiply };
// Waits for the lanes of `mask`. kShuffle returns the value of lane `source`; kBallot the lanes
// whose value is not zero.
std::uint64_t WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                       Site site);
// What a lane brings to a product of matrices, and where its elements of the sum go.
struct MmaOperands {
  const unsigned* a;  // 4 words
  const unsigned* b;  // 2
  float* d;           // 4
};
// Waits for all lanes of the warp, and multiplies: tensor_core.h.
void WarpMultiply(const MmaOperands& operands, Site site);
// Of the calling thread.
int Lane();
// Reports a shuffle whose width is not a power of two up to 32.
[[noreturn]] void BadWidth(int width, Site site);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_RUNTIME_H_
