// Who a thread is, barriers, shuffles, votes and products of matrices of the emulation.
#ifndef HEADWISE_KERNELS_EMULATION_WARP_H_
#define HEADWISE_KERNELS_EMULATION_WARP_H_

#include <concepts>
#include <cstdint>
#include <cstring>

#include "kernels/emulation/runtime.h"
#include "kernels/emulation/vector_types.h"

namespace headwise::emulation::device {

// Of the running CUDA thread. Only the runtime writes them.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

inline void __syncthreads(Site site = Site::current()) { Barrier(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, Site site = Site::current()) {
  WarpWait(WarpOperation::kSync, mask, 0, 0, site);
}

namespace internal {

// What CUDA shuffles: smaller integers are promoted by the caller.
template <typename T>
concept Shuffled = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, long> ||
    std::same_as<T, unsigned long> || std::same_as<T, long long> ||
    std::same_as<T, unsigned long long> || std::same_as<T, float> || std::same_as<T, double>;

template <Shuffled T>
inline T Shuffle(unsigned mask, T value, int source, Site site) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = WarpWait(WarpOperation::kShuffle, mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline void CheckWidth(int width, Site site) {
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0) BadWidth(width, site);
}

}  // namespace internal

// A warp is cut into segments of `width` lanes. A source outside the own segment gives the caller's
// own value, except that xor may read lower segments and a plain index counts within the segment.
template <internal::Shuffled T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                     Site site = Site::current()) {
  internal::CheckWidth(width, site);
  return internal::Shuffle(mask, value, (Lane() & -width) | (source & (width - 1)), site);
}
template <internal::Shuffled T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                         Site site = Site::current()) {
  internal::CheckWidth(width, site);
  const int lane = Lane(), source = lane ^ (lane_mask & 31);
  const bool beyond = source >= (lane & -width) + width;
  return internal::Shuffle(mask, value, beyond ? lane : source, site);
}
template <internal::Shuffled T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        Site site = Site::current()) {
  internal::CheckWidth(width, site);
  const int lane = Lane(), source = lane - static_cast<int>(delta & 31u);
  return internal::Shuffle(mask, value, source < (lane & -width) ? lane : source, site);
}
template <internal::Shuffled T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          Site site = Site::current()) {
  internal::CheckWidth(width, site);
  const int lane = Lane(), source = lane + static_cast<int>(delta & 31u);
  return internal::Shuffle(mask, value, source >= (lane & -width) + width ? lane : source, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, Site site = Site::current()) {
  return static_cast<unsigned>(
      WarpWait(WarpOperation::kBallot, mask, predicate != 0 ? 1 : 0, 0, site));
}
inline int __any_sync(unsigned mask, int predicate, Site site = Site::current()) {
  return __ballot_sync(mask, predicate, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, Site site = Site::current()) {
  return __ballot_sync(mask, predicate, site) == mask ? 1 : 0;
}

// d += a b, matrices of the warp: tensor_core.h. Every lane of a whole warp must call it.
inline void MultiplyHalves(const unsigned (&a)[4], const unsigned (&b)[2], float (&d)[4],
                           Site site = Site::current()) {
  WarpMultiply({a, b, d}, site);
}

}  // namespace headwise::emulation::device

#endif  // HEADWISE_KERNELS_EMULATION_WARP_H_
