// The mapping for any even D, alignment and R: a warp holds a head, staged in shared memory as fp32.
// Lanes load and store consecutive elements, sum whole chunks, and turn whole rotary pairs; between
// these, the warp meets at __syncwarp.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_WARP_HEAD_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_WARP_HEAD_CUH_

#include <cstdint>
#include <type_traits>

#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// Where element i lies: one word is left out after every 8, so that lanes that walk neighbouring
// chunks use different banks.
__host__ __device__ constexpr int PaddedIndex(int i) { return i + i / 8; }
__host__ __device__ constexpr int PaddedLength(int head_dim) {
  return head_dim + (head_dim + 7) / 8;
}

// Elements 2i and 2i + 1 of a head in global memory. `paired`: both at once, which their alignment
// must allow.
template <typename T>
__device__ __forceinline__ float2 LoadPair(const T* head, int i, bool paired) {
  if constexpr (sizeof(T) == 2) {
    unsigned bits;
    if (paired) {
      bits = LoadStreaming(reinterpret_cast<const unsigned*>(head) + i);
    } else {
      const auto* halves = reinterpret_cast<const unsigned short*>(head);
      bits = LoadStreaming(halves + 2 * i) |
             static_cast<unsigned>(LoadStreaming(halves + 2 * i + 1)) << 16;
    }
    return make_float2(LowBFloat16(bits), HighBFloat16(bits));
  } else {
    if (paired) return LoadStreaming(reinterpret_cast<const float2*>(head) + i);
    return make_float2(LoadStreaming(head + 2 * i), LoadStreaming(head + 2 * i + 1));
  }
}
template <typename T>
__device__ __forceinline__ void StorePair(T* head, int i, bool paired, float2 y) {
  if constexpr (sizeof(T) == 2) {
    const unsigned bits = PackBFloat16(y.x, y.y);
    if (paired) {
      StoreGlobal(reinterpret_cast<unsigned*>(head) + i, bits);
    } else {
      auto* halves = reinterpret_cast<unsigned short*>(head);
      StoreGlobal(halves + 2 * i, static_cast<unsigned short>(bits & 0xffffu));
      StoreGlobal(halves + 2 * i + 1, static_cast<unsigned short>(bits >> 16));
    }
  } else {
    if (paired) {
      StoreGlobal(reinterpret_cast<float2*>(head) + i, y);
    } else {
      StoreGlobal(head + 2 * i, y.x);
      StoreGlobal(head + 2 * i + 1, y.y);
    }
  }
}

// A bit copy of a head by one warp.
template <typename T>
__device__ __forceinline__ void CopyHead(const T* from, T* to, int head_dim, int lane,
                                         bool paired) {
  using Word = std::conditional_t<sizeof(T) == 2, unsigned, uint2>;  // two elements
  using Single = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned>;
  if (paired) {
    for (int i = lane; i < head_dim / 2; i += 32) {
      StoreGlobal(reinterpret_cast<Word*>(to) + i,
                  LoadStreaming(reinterpret_cast<const Word*>(from) + i));
    }
  } else {
    for (int i = lane; i < head_dim; i += 32) {
      StoreGlobal(reinterpret_cast<Single*>(to) + i,
                  LoadStreaming(reinterpret_cast<const Single*>(from) + i));
    }
  }
}

// A warp's head in shared memory: elements begin + PaddedIndex(i) of `values`. Every lane of the
// warp must call Load, Sum and Sync together.
template <typename Values>
class WarpHead {
 public:
  __device__ __forceinline__ WarpHead(Values& values, int begin, int head_dim, int lane)
      : values_(values), begin_(begin), head_dim_(head_dim), lane_(lane) {}

  __device__ __forceinline__ float Get(int i) const { return values_[begin_ + PaddedIndex(i)]; }
  __device__ __forceinline__ void Set(int i, float y) { values_[begin_ + PaddedIndex(i)] = y; }

  // From global memory; no Sync.
  template <typename T>
  __device__ __forceinline__ void Load(const T* head, bool paired) {
    for (int i = lane_; i < head_dim_ / 2; i += 32) {
      const float2 x = LoadPair(head, i, paired);
      Set(2 * i, x.x);
      Set(2 * i + 1, x.y);
    }
  }
  template <typename T>
  __device__ __forceinline__ void Store(T* head, bool paired) const {
    for (int i = lane_; i < head_dim_ / 2; i += 32) {
      StorePair(head, i, paired, make_float2(Get(2 * i), Get(2 * i + 1)));
    }
  }

  // S(this, other), in every lane: lane l has chunks l and l + 32.
  __device__ __forceinline__ float Sum(const WarpHead& other) const {
    int chunks = 1;
    while (8 * chunks < head_dim_) chunks *= 2;
    float sum = Chunk(other, lane_);
    if (chunks > 32) sum = __fadd_rn(sum, Chunk(other, lane_ + 32));
    for (int n = (chunks > 32 ? 32 : chunks) / 2; n > 0; n /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, n));
    }
    return __shfl_sync(kAllLanes, sum, 0);  // lanes beyond the chunks summed padding
  }

 private:
  // A serial chain from +0; chunks beyond the head are +0.
  __device__ __forceinline__ float Chunk(const WarpHead& other, int c) const {
    float sum = 0.0f;
    for (int i = 8 * c; i < 8 * c + 8 && i < head_dim_; ++i) {
      sum = __fmaf_rn(Get(i), other.Get(i), sum);
    }
    return sum;
  }

  Values& values_;
  int begin_, head_dim_, lane_;
};

// The elements that pair i of a head takes: a rotary pair, or two that pass through.
struct ElementPair {
  int first, second;
  bool rotates;
};
__device__ __forceinline__ ElementPair PairAt(Rope rope, int rotary_dim, int i) {
  const bool rotates = rope != Rope::kNone && 2 * i < rotary_dim;
  if (rope == Rope::kHalf && rotates) return {i, i + rotary_dim / 2, true};
  return {2 * i, 2 * i + 1, rotates};
}

// w' of a pair; 1 where the norm has no weight.
__device__ __forceinline__ void LoadPairWeights(const HeadMaths& maths, const float* weight,
                                                const ElementPair& pair, float (&w)[2]) {
  w[0] = w[1] = 1.0f;
  if (!maths.weighted) return;
  w[0] = EffectiveWeight(maths, LoadCached(weight + pair.first));
  w[1] = EffectiveWeight(maths, LoadCached(weight + pair.second));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_WARP_HEAD_CUH_
