// The vector mapping: a team of D/16 lanes holds a head, two chunks of 8 consecutive elements a
// lane, so that a chunk of the canonical sum is one lane's serial chain, a chunk moves in 16-byte
// vectors, and both elements of a rotary pair lie in one lane.
//
// Which two chunks: of n = D/8, lane l holds l and l + n/2. With partial rotary in kHalf pairing,
// the first R/16 lanes hold l and l + R/16 (R a multiple of 16), the others split the rest alike.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_TEAM_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_TEAM_CUH_

#include <cstdint>

#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// 8 consecutive elements as they lie in memory.
template <typename T>
struct Chunk {
  static constexpr int kVectors = 8 * sizeof(T) / sizeof(uint4);
  uint4 vectors[kVectors];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = make_uint4(0, 0, 0, 0);
  }
  // Read once, by nobody else.
  __device__ __forceinline__ void Load(const T* from) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      vectors[i] = LoadStreaming(reinterpret_cast<const uint4*>(from) + i);
    }
  }
  __device__ __forceinline__ void Store(T* to) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) StoreGlobal(reinterpret_cast<uint4*>(to) + i, vectors[i]);
  }
  __device__ __forceinline__ void Unpack(float (&x)[8]) const {
    if constexpr (sizeof(T) == 2) {
      const uint4 v = vectors[0];
      x[0] = LowBFloat16(v.x), x[1] = HighBFloat16(v.x);
      x[2] = LowBFloat16(v.y), x[3] = HighBFloat16(v.y);
      x[4] = LowBFloat16(v.z), x[5] = HighBFloat16(v.z);
      x[6] = LowBFloat16(v.w), x[7] = HighBFloat16(v.w);
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        x[4 * i] = __uint_as_float(vectors[i].x), x[4 * i + 1] = __uint_as_float(vectors[i].y);
        x[4 * i + 2] = __uint_as_float(vectors[i].z), x[4 * i + 3] = __uint_as_float(vectors[i].w);
      }
    }
  }
  __device__ __forceinline__ void Pack(const float (&x)[8]) {
    if constexpr (sizeof(T) == 2) {
      vectors[0] = make_uint4(PackBFloat16(x[0], x[1]), PackBFloat16(x[2], x[3]),
                              PackBFloat16(x[4], x[5]), PackBFloat16(x[6], x[7]));
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        vectors[i] = make_uint4(__float_as_uint(x[4 * i]), __float_as_uint(x[4 * i + 1]),
                                __float_as_uint(x[4 * i + 2]), __float_as_uint(x[4 * i + 3]));
      }
    }
  }
};

// The two chunks of a lane as floats.
struct LaneValues {
  float chunk[2][8];
};

// One chunk of the canonical sum: a serial chain from +0.
__device__ __forceinline__ float ChunkDot(const float (&a)[8], const float (&b)[8]) {
  float sum = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) sum = __fmaf_rn(a[e], b[e], sum);
  return sum;
}

// A lane's place in its team.
template <int kDim, Rope kRope>
class Team {
 public:
  static constexpr int kHeadDim = kDim;
  static constexpr int kLanes = kDim / 16;
  static constexpr int kPerWarp = 32 / kLanes;

  // lane: 0 to 31. R is a multiple of 16 (kHalf) or 8 (kInterleaved), or anything (kNone).
  __device__ __forceinline__ Team(int lane, int rotary_dim)
      : lane_(lane % kLanes), rotary_dim_(rotary_dim) {
    if (kRope == Rope::kHalf && lane_ >= rotating()) {
      chunk_[0] = 2 * rotating() + lane_ - rotating();
      chunk_[1] = chunk_[0] + kLanes - rotating();
    } else {
      chunk_[0] = lane_;
      chunk_[1] = lane_ + (kRope == Rope::kHalf ? rotating() : kLanes);
    }
  }

  __device__ __forceinline__ int lane() const { return lane_; }
  // Which chunk of the head the lane's chunk i (0 or 1) is.
  __device__ __forceinline__ int chunk(int i) const { return chunk_[i]; }

  // The canonical sum of the chunks' partials p0 and p1, in every lane. Every lane of the warp must
  // call it.
  __device__ __forceinline__ float Sum(float p0, float p1) const {
    if (kRope == Rope::kHalf && rotary_dim_ != kDim) {
      const float first = Partial(p0, p1, lane_), second = Partial(p0, p1, lane_ + kLanes);
      p0 = first;
      p1 = second;
    }
    float sum = __fadd_rn(p0, p1);
#pragma unroll
    for (int n = kLanes / 2; n > 0; n /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, n));
    }
    return sum;
  }

  // Turns the lane's values by a row of the table in shared memory: R/8 quads of cos from
  // `begin`, then as many of sin. `turn` is Rotate or RotateBack.
  template <typename Quads, typename Turn>
  __device__ __forceinline__ void Apply(const Quads& table, int begin, LaneValues& y,
                                        Turn turn) const {
    const int quads = rotary_dim_ / 8;
    if constexpr (kRope == Rope::kHalf) {
      if (lane_ >= rotating()) return;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 cos = table[begin + 2 * lane_ + i];
        const float4 sin = table[begin + quads + 2 * lane_ + i];
        turn(y.chunk[0][4 * i], y.chunk[1][4 * i], cos.x, sin.x);
        turn(y.chunk[0][4 * i + 1], y.chunk[1][4 * i + 1], cos.y, sin.y);
        turn(y.chunk[0][4 * i + 2], y.chunk[1][4 * i + 2], cos.z, sin.z);
        turn(y.chunk[0][4 * i + 3], y.chunk[1][4 * i + 3], cos.w, sin.w);
      }
    } else if constexpr (kRope == Rope::kInterleaved) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (chunk_[i] >= quads) continue;
        const float4 cos = table[begin + chunk_[i]];
        const float4 sin = table[begin + quads + chunk_[i]];
        turn(y.chunk[i][0], y.chunk[i][1], cos.x, sin.x);
        turn(y.chunk[i][2], y.chunk[i][3], cos.y, sin.y);
        turn(y.chunk[i][4], y.chunk[i][5], cos.z, sin.z);
        turn(y.chunk[i][6], y.chunk[i][7], cos.w, sin.w);
      }
    }
  }

 private:
  // Lanes whose chunks are rotated (kHalf).
  __device__ __forceinline__ int rotating() const { return rotary_dim_ / 16; }

  // The partial of chunk c, from the lane that has it.
  __device__ __forceinline__ float Partial(float p0, float p1, int c) const {
    const int turned = rotating(), rest = kLanes - turned, i = c - 2 * turned;
    const bool second = i < 0 ? c >= turned : i >= rest;
    const int owner = i < 0 ? (second ? c - turned : c) : turned + (second ? i - rest : i);
    const float a = __shfl_sync(kAllLanes, p0, owner, kLanes);
    const float b = __shfl_sync(kAllLanes, p1, owner, kLanes);
    return second ? b : a;
  }

  int lane_;
  int rotary_dim_;
  int chunk_[2];
};

// The reciprocal roots of N heads (or of a head's N tokens), 1 without a norm: each is taken by a
// lane of its own, at once, and handed to the others. N is at most the team's lanes. Every lane of
// the warp must call it.
template <typename ATeam, typename T, int N>
__device__ __forceinline__ void ReciprocalRoots(const ATeam& team, const HeadMaths& maths,
                                                const Chunk<T> (&x)[N][2], float (&roots)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) roots[j] = 1.0f;
  if (!maths.norm) return;
  float mine = 0.0f;  // the sum whose root this lane takes
#pragma unroll
  for (int j = 0; j < N; ++j) {
    LaneValues v;
    x[j][0].Unpack(v.chunk[0]);
    x[j][1].Unpack(v.chunk[1]);
    const float sum = team.Sum(ChunkDot(v.chunk[0], v.chunk[0]), ChunkDot(v.chunk[1], v.chunk[1]));
    if (team.lane() % N == j) mine = sum;
  }
  const float root =
      ReciprocalRoot(__fadd_rn(__fmul_rn(mine, 1.0f / ATeam::kHeadDim), maths.epsilon));
#pragma unroll
  for (int j = 0; j < N; ++j) roots[j] = __shfl_sync(kAllLanes, root, j, ATeam::kLanes);
}

// w' of elements 4i to 4i + 3; `weight` [D] is read where the norm has one.
__device__ __forceinline__ float4 LoadWeightQuad(const HeadMaths& maths, const float* weight,
                                                 int i) {
  if (!maths.weighted) return make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  const float4 w = LoadCached(reinterpret_cast<const float4*>(weight) + i);
  return make_float4(EffectiveWeight(maths, w.x), EffectiveWeight(maths, w.y),
                     EffectiveWeight(maths, w.z), EffectiveWeight(maths, w.w));
}

__device__ __forceinline__ void SpreadQuads(float4 a, float4 b, float (&x)[8]) {
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
  x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

// w' of the lane's elements.
__device__ __forceinline__ void LoadWeights(const HeadMaths& maths, const float* weight, int chunk0,
                                            int chunk1, LaneValues& w) {
  SpreadQuads(LoadWeightQuad(maths, weight, 2 * chunk0),
              LoadWeightQuad(maths, weight, 2 * chunk0 + 1), w.chunk[0]);
  SpreadQuads(LoadWeightQuad(maths, weight, 2 * chunk1),
              LoadWeightQuad(maths, weight, 2 * chunk1 + 1), w.chunk[1]);
}

// Quad i of a table row, cos then sin: what is staged in shared memory.
__device__ __forceinline__ float4 LoadTableQuad(const Rotation& rotation, std::int64_t position,
                                                int i) {
  const int quads = rotation.rotary_dim / 8;
  const float* values = i < quads ? rotation.cos : rotation.sin;
  return LoadCached(reinterpret_cast<const float4*>(values + position * (rotation.rotary_dim / 2)) +
                    (i < quads ? i : i - quads));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_TEAM_CUH_
