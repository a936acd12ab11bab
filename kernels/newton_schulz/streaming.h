// Memory traffic that arithmetic need not wait for: writes that bypass the cache, reads ahead.
//
// For .cc files of the CPU path.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_STREAMING_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_STREAMING_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace headwise::newton_schulz {

inline constexpr std::int64_t kCacheLine = 64;

// Copies n floats without reading the destination into the cache first: a third of the traffic of
// writing memory that is not cached. StreamFence must come before another thread reads it.
inline void StreamCopy(const float* from, std::int64_t n, float* to) {
#if defined(__AVX__)
  constexpr std::int64_t kFloats = kCacheLine / sizeof(float);
  const std::int64_t past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / 4 % kFloats);
  const std::int64_t head = std::min(n, (kFloats - past) % kFloats);
  std::memcpy(to, from, head * sizeof(float));
  std::int64_t i = head;
  for (; i + kFloats <= n; i += kFloats) {
    // Both halves of a line at once, so that it leaves the write-combining buffer whole.
    _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_loadu_ps(from + i + 8));
  }
  std::memcpy(to + i, from + i, (n - i) * sizeof(float));
#else
  std::memcpy(to, from, n * sizeof(float));
#endif
}

inline void StreamFence() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

// Asks for the cache lines of n elements, to be there when they are read later.
template <typename T>
inline void Prefetch(const T* p, std::int64_t n) {
  const char* const begin = reinterpret_cast<const char*>(p);
  for (std::int64_t i = 0; i < n * static_cast<std::int64_t>(sizeof(T)); i += kCacheLine) {
    __builtin_prefetch(begin + i, /*rw=*/0, /*locality=*/2);
  }
}

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_STREAMING_H_
