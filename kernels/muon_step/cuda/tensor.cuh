// Blocks of up to 128 rows on tensor cores: matrices as pairs of halves in shared memory, and the
// tiles of a symmetric product.
//
// A matrix M times a power of two lies in two planes, the high halves and the low ones of
// half_split.h, each by rows of kStride halves. A warp multiplies tiles of 16 x 16: the products of
// high halves, each mma's sum added in fp32 registers (tensor cores chop theirs), and those of a high
// and a low half. Only tiles on or below the diagonal are computed; the elements above it are mirrored.
//
// A thread has 8 elements of a tile, at (row, column) of TileElement; tiles go round among the warps.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/half_split.h"

namespace headwise::HW_CUDA_NAMESPACE {

using muon_step::kTensorTile;

// Up to 64 rows: 10 tiles by 5 warps. Up to 128: 36 tiles by 9 warps.
template <int kRows>
inline constexpr int kTensorWarps = kRows == 64 ? 5 : 9;
template <int kRows>
inline constexpr int kTensorThreads = 32 * kTensorWarps<kRows>;
// Tiles of a thread.
template <int kRows>
inline constexpr int kTensorTiles = kRows == 64 ? 2 : 4;
inline constexpr int kTileElements = 8;

// --- Powers of two --------------------------------------------------------------------------------

// The exponent of the power of two that brings the magnitude with these bits into [2^14, 2^15): that
// of HalfScale, for subnormals as well; 0 for 0.
__device__ __forceinline__ int HalfExponent(unsigned largest) {
  if (largest == 0) return 0;
  const int biased = static_cast<int>(largest >> 23);
  return 14 + (biased != 0 ? 127 - biased : 118 + __clz(static_cast<int>(largest)));
}

// 2^exponent as two factors; exponents beyond 252 are taken for 252.
__device__ __forceinline__ ScaleFactors PowerFactors(int exponent) {
  const int all = max(-252, min(252, exponent)), first = max(-126, min(126, all));
  return {PowerOfTwo(first), PowerOfTwo(all - first)};
}

// --- Pairs of halves ------------------------------------------------------------------------------

struct Halves {
  unsigned short high, low;
};
__device__ __forceinline__ Halves Split(float x) {
  const __half high = __float2half_rn(x);
  const float rest = __fmul_rn(__fsub_rn(x, __half2float(high)), muon_step::kLowScale);
  return {__half_as_ushort(high), __half_as_ushort(__float2half_rn(rest))};
}
__device__ __forceinline__ unsigned Packed(unsigned short first, unsigned short second) {
  return static_cast<unsigned>(first) | static_cast<unsigned>(second) << 16;
}

// Rows of up to kColumns halves, twice; four words more a row, so that the rows of a fragment lie in
// different banks.
template <int kRows, int kColumns>
class Planes {
 public:
  static constexpr int kStride = kColumns + 8;
  static constexpr int kLow = kRows * kStride;
  static constexpr int kHalves = 2 * kLow;

  __device__ __forceinline__ Planes(const SharedArray<unsigned short>& halves, int begin)
      : halves_(halves), begin_(begin) {}

  __device__ __forceinline__ void Set(int row, int column, Halves v) const {
    const int at = begin_ + row * kStride + column;
    halves_[at] = v.high;
    halves_[at + kLow] = v.low;
  }
  // (row, column) and the next one in the row; column is even.
  __device__ __forceinline__ void SetTwo(int row, int column, Halves v, Halves w) const {
    const int at = begin_ + row * kStride + column;
    halves_.template Store<unsigned>(at, Packed(v.high, w.high));
    halves_.template Store<unsigned>(at + kLow, Packed(v.low, w.low));
  }
  // Four of a row; column is a multiple of 4.
  __device__ __forceinline__ void SetFour(int row, int column, const Halves (&v)[4]) const {
    const int at = begin_ + row * kStride + column;
    halves_.template Store<uint2>(
        at, make_uint2(Packed(v[0].high, v[1].high), Packed(v[2].high, v[3].high)));
    halves_.template Store<uint2>(
        at + kLow, make_uint2(Packed(v[0].low, v[1].low), Packed(v[2].low, v[3].low)));
  }

  // Four of a row as words of a high and a low half; column is a multiple of 4.
  __device__ __forceinline__ void SetWords(int row, int column, uint4 words) const {
    const int at = begin_ + row * kStride + column;
    halves_.template Store<uint2>(at, make_uint2(__byte_perm(words.x, words.y, 0x5410),
                                                 __byte_perm(words.z, words.w, 0x5410)));
    halves_.template Store<uint2>(at + kLow, make_uint2(__byte_perm(words.x, words.y, 0x7632),
                                                        __byte_perm(words.z, words.w, 0x7632)));
  }
  __device__ __forceinline__ uint4 Words(int row, int column) const {
    const int at = begin_ + row * kStride + column;
    const uint2 high = halves_.template Load<uint2>(at);
    const uint2 low = halves_.template Load<uint2>(at + kLow);
    return make_uint4(__byte_perm(high.x, low.x, 0x5410), __byte_perm(high.x, low.x, 0x7632),
                      __byte_perm(high.y, low.y, 0x5410), __byte_perm(high.y, low.y, 0x7632));
  }

  // The fragment of an A of 16 rows and 16 columns, from (row, column) on.
  __device__ __forceinline__ void LoadA(int row, int column, unsigned (&high)[4],
                                        unsigned (&low)[4]) const {
    const int at = At(row, column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = at + i % 2 * 8 * kStride + i / 2 * 8;
      high[i] = halves_.template Load<unsigned>(place);
      low[i] = halves_.template Load<unsigned>(place + kLow);
    }
  }
  // That of a B whose columns are the rows [row, row + 8), its rows the columns [column, column + 16).
  __device__ __forceinline__ void LoadB(int row, int column, unsigned (&high)[2],
                                        unsigned (&low)[2]) const {
    const int at = At(row, column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[i] = halves_.template Load<unsigned>(at + 8 * i);
      low[i] = halves_.template Load<unsigned>(at + 8 * i + kLow);
    }
  }

 private:
  __device__ __forceinline__ int At(int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return begin_ + (row + lane / 4) * kStride + column + lane % 4 * 2;
  }

  SharedArray<unsigned short> halves_;
  int begin_;
};

// --- X --------------------------------------------------------------------------------------------

// Quad number q of rows [0, kRows) and columns [c0, c0 + kStage) of X, in the order of ForEachQuad; its
// count is 0 if it is beyond the rows of X and c_end. There are kRows kStage / 4: those after them lie at
// row kRows.
template <int kRows>
__device__ __forceinline__ Quad QuadAt(const BlockEntry& b, int c0, int c_end, int q) {
  const int along = q % 4, across = q / 4 % 8, rest = q / 32;
  Quad quad;
  if (b.transposed != 0) {
    quad.i = rest % (kRows / 16) * 16 + 4 * along;
    quad.c = c0 + rest / (kRows / 16) * 8 + across;
    quad.count = min(4, b.d - quad.i);
  } else {
    quad.i = rest / (kStage / 16) * 8 + across;
    quad.c = c0 + rest % (kStage / 16) * 16 + 4 * along;
    quad.count = min(4, c_end - quad.c);
  }
  if (q >= kRows * kStage / 4) quad.i = kRows;
  if (quad.i >= b.d || quad.c >= c_end) quad.count = 0;
  return quad;
}

// X of a quad, from gradient and momentum, or from the scratch; zeros beyond it.
template <typename G>
__device__ __forceinline__ void LoadQuad(const StepArguments& a, const BlockEntry& b,
                                         bool from_scratch, float gradient_scale, const Quad& quad,
                                         bool stores, float (&x)[4]) {
  x[0] = x[1] = x[2] = x[3] = 0.0f;
  if (quad.count == 0) return;
  if (from_scratch) {
    LoadX(a, b, 0, quad, x);
  } else {
    LoadUpdate<G>(a, b, gradient_scale, quad, stores, x);
  }
}

// --- Sums -----------------------------------------------------------------------------------------

// Four elements of a product, of 16 x 8.
struct SplitSums {
  float main[4], cross[4];

  __device__ __forceinline__ void SetZero() {
#pragma unroll
    for (int i = 0; i < 4; ++i) main[i] = cross[i] = 0.0f;
  }
  // Over 16 terms.
  __device__ __forceinline__ void Add(const unsigned (&a_high)[4], const unsigned (&a_low)[4],
                                      const unsigned (&b_high)[2], const unsigned (&b_low)[2]) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    MultiplyHalves(a_high, b_high, sum);
    MultiplyHalves(a_high, b_low, cross);
    MultiplyHalves(a_low, b_high, cross);
#pragma unroll
    for (int i = 0; i < 4; ++i) main[i] = __fadd_rn(main[i], sum[i]);
  }
  __device__ __forceinline__ float Get(int i) const {
    return __fmaf_rn(cross[i], 1.0f / muon_step::kLowScale, main[i]);
  }
  __device__ __forceinline__ void Scale(const ScaleFactors& factors) {
#pragma unroll
    for (int i = 0; i < 4; ++i) main[i] = factors(main[i]), cross[i] = factors(cross[i]);
  }
};

// --- Tiles of a symmetric matrix ------------------------------------------------------------------

struct SymmetricTile {
  int row, column;  // first ones
  bool active;      // it has rows of the block
};

// How many tiles a block has: of 16-row strips.
__device__ __forceinline__ int Strips(int d) { return (d + kTensorTile - 1) / kTensorTile; }
__device__ __forceinline__ int TileCount(int d) { return Strips(d) * (Strips(d) + 1) / 2; }

// The number of the warp's tile `which`, of the lower triangle row by row.
template <int kRows>
__device__ __forceinline__ int TileNumber(int which) {
  return static_cast<int>(threadIdx.x) / 32 + which * kTensorWarps<kRows>;
}
template <int kRows>
__device__ __forceinline__ SymmetricTile MakeTile(int d, int which) {
  const int number = TileNumber<kRows>(which);
  int row = 0;
  while ((row + 1) * (row + 2) / 2 <= number) ++row;
  return {kTensorTile * row, kTensorTile * (number - row * (row + 1) / 2), row < Strips(d)};
}

// Where the thread's element `el` of a tile is, within the tile. Elements 2i and 2i + 1 are
// neighbours in a row; el / 4 is the half of the columns.
struct TileElement {
  int row, column;
};
__device__ __forceinline__ TileElement ElementOf(int el) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {lane / 4 + (el / 2 % 2) * 8, el / 4 * 8 + lane % 4 * 2 + el % 2};
}

// The thread's tile of A B^T, over columns [0, depth) of both; depth is a multiple of 16.
template <typename Matrix>
__device__ __forceinline__ void AddProduct(const Matrix& a, const Matrix& b,
                                           const SymmetricTile& tile, int depth,
                                           SplitSums (&sums)[2]) {
  for (int k = 0; k < depth; k += kTensorTile) {
    unsigned a_high[4], a_low[4];
    a.LoadA(tile.row, k, a_high, a_low);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned b_high[2], b_low[2];
      b.LoadB(tile.column + 8 * half, k, b_high, b_low);
      sums[half].Add(a_high, a_low, b_high, b_low);
    }
  }
}

// The largest of all threads' magnitudes so far, in `*largest`, after the next barrier.
__device__ __forceinline__ void JoinLargest(unsigned magnitude, unsigned* largest) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    magnitude = max(magnitude, __shfl_xor_sync(kAllLanes, magnitude, lane));
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest, magnitude);
}

// --- The scratch of a block -----------------------------------------------------------------------

// The bits of a chunk's largest magnitude: what its partial was scaled by.
__device__ __forceinline__ unsigned* ChunkLargest(const StepArguments& a, const BlockEntry& b,
                                                  int chunk) {
  return reinterpret_cast<unsigned*>(a.scratch + b.partials) + chunk;
}
// Element 0 of a tile of a chunk's Gram matrix; the others follow 32 apart.
__device__ __forceinline__ float* TensorPartial(const StepArguments& a, const BlockEntry& b,
                                                int chunk, int number) {
  const int chunks = (b.n + kChunk - 1) / kChunk;
  const std::int64_t begin = b.partials + (chunks + 63) / 64 * 64;
  return a.scratch + begin +
         (std::int64_t{chunk} * TileCount(b.d) + number) * (32 * kTileElements) +
         static_cast<int>(threadIdx.x) % 32;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CUH_
