#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/base/status_macros.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda_unfused.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// A chunk is 8 consecutive elements of a head, the unit of the canonical sum; a thread has one at a
// time, and the D/8 threads of a head are neighbours in a warp.
constexpr int kChunk = 8;
constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kTile = static_cast<int>(kWeightGradientTile);

__device__ void LoadChunk(const BFloat16* from, float (&x)[kChunk]) {
  const uint4 bits = LoadGlobal(reinterpret_cast<const uint4*>(from));
  const unsigned words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ void LoadChunk(const float* from, float (&x)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; i += 4) {
    const float4 v = LoadGlobal(reinterpret_cast<const float4*>(from + i));
    x[i] = v.x;
    x[i + 1] = v.y;
    x[i + 2] = v.z;
    x[i + 3] = v.w;
  }
}

__device__ unsigned RoundedPair(float low, float high) {
  return static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
         static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

__device__ void StoreChunk(BFloat16* to, const float (&x)[kChunk]) {
  StoreGlobal(reinterpret_cast<uint4*>(to),
              make_uint4(RoundedPair(x[0], x[1]), RoundedPair(x[2], x[3]), RoundedPair(x[4], x[5]),
                         RoundedPair(x[6], x[7])));
}

__device__ void StoreChunk(float* to, const float (&x)[kChunk]) {
  StoreGlobal(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
  StoreGlobal(reinterpret_cast<float4*>(to + 4), make_float4(x[4], x[5], x[6], x[7]));
}

// x as a tensor of T holds it.
template <typename T>
__device__ float Rounded(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return __bfloat162float(__float2bfloat16_rn(x));
  }
}

// Bits as they are, a NaN's too.
template <typename T>
__device__ void CopyChunk(const T* from, T* to) {
  constexpr int kPerWord = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kChunk; i += kPerWord) {
    StoreGlobal(reinterpret_cast<uint4*>(to + i),
                LoadGlobal(reinterpret_cast<const uint4*>(from + i)));
  }
}

// Which chunk this thread takes, of all chunks of a tensor.
__device__ std::int64_t ThreadIndex() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// S(a, b), in every thread of the head. All 32 lanes must call it.
template <int kDim>
__device__ float HeadSum(const float (&a)[kChunk], const float (&b)[kChunk]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) sum = __fmaf_rn(a[i], b[i], sum);
#pragma unroll
  for (int half = kDim / kChunk / 2; half >= 1; half /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, half));
  }
  return sum;
}

template <int kDim>
__device__ float ReciprocalRms(const float (&x)[kChunk], float epsilon) {
  const float mean = __fdiv_rn(HeadSum<kDim>(x, x), static_cast<float>(kDim));
  const double v = static_cast<double>(__fadd_rn(mean, epsilon));
  return __double2float_rn(__ddiv_rn(1.0, __dsqrt_rn(v)));
}

// --- split and concat ----------------------------------------------------------------------------

struct Slots {
  int query_heads, kv_heads, group_size;
  bool interleaved;
};

// The part of a packed row that slot `slot` goes to (0: q, 1: k, 2: v), and its head there.
__device__ void FindSlot(const Slots& slots, int slot, int& part, int& head) {
  if (slots.interleaved) {
    const int group = slot / (slots.group_size + 2), i = slot % (slots.group_size + 2);
    part = max(i - slots.group_size + 1, 0);
    head = part == 0 ? group * slots.group_size + i : group;
  } else {
    part = slot < slots.query_heads ? 0 : 1 + (slot - slots.query_heads) / slots.kv_heads;
    head = part == 0 ? slot : (slot - slots.query_heads) % slots.kv_heads;
  }
}

// Copies between packed [T, slots, D] and q [T, H, D], k and v [T, G, D]. Packed or Part is const T,
// the side that is read. v may be null: then its slots are left out.
template <bool kSplit, typename T, typename Packed, typename Part>
__global__ void __launch_bounds__(kThreads) MoveHeads(Packed* packed, Part* q, Part* k, Part* v,
                                                      std::int64_t tokens, Slots slots, int dim) {
  const int chunks = dim / kChunk, slots_per_token = slots.query_heads + 2 * slots.kv_heads;
  const std::int64_t index = ThreadIndex();
  const std::int64_t at = index / chunks, t = at / slots_per_token;
  const int offset = static_cast<int>(index % chunks) * kChunk;
  if (t >= tokens) return;
  int part, head;
  FindSlot(slots, static_cast<int>(at % slots_per_token), part, head);
  Part* const rows = part == 0 ? q : part == 1 ? k : v;
  if (rows == nullptr) return;
  const std::int64_t heads = part == 0 ? slots.query_heads : slots.kv_heads;
  Part* const separate = rows + (t * heads + head) * dim + offset;
  Packed* const together = packed + at * dim + offset;
  if constexpr (kSplit) {
    CopyChunk<T>(together, separate);
  } else {
    CopyChunk<T>(separate, together);
  }
}

// --- norm ----------------------------------------------------------------------------------------

// w' of a chunk; 1 without a weight, which changes no bit.
__device__ void EffectiveWeight(const float* weight, bool gain_centered, int offset,
                                float (&w)[kChunk]) {
  if (weight == nullptr) {
#pragma unroll
    for (float& x : w) x = 1.0f;
    return;
  }
  LoadChunk(weight + offset, w);
  if (!gain_centered) return;
#pragma unroll
  for (float& x : w) x = __fadd_rn(1.0f, x);
}

// y = norm(x) scale of `heads` heads, all tokens' together, rounded before the scale and after. A
// scale of 1 is no multiply at all.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    NormForward(const T* x, const float* weight, bool gain_centered, float epsilon, float scale,
                T* y, std::int64_t heads) {
  const std::int64_t at = ThreadIndex() * kChunk;
  const bool mine = at < heads * kDim;
  float v[kChunk] = {}, w[kChunk];
  if (mine) LoadChunk(x + at, v);
  const float r = ReciprocalRms<kDim>(v, epsilon);
  if (!mine) return;
  EffectiveWeight(weight, gain_centered, static_cast<int>(at % kDim), w);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = __fmul_rn(__fmul_rn(v[i], r), w[i]);
  if (scale != 1.0f) {
#pragma unroll
    for (float& y_i : v) y_i = __fmul_rn(Rounded<T>(y_i), scale);
  }
  StoreChunk(y + at, v);
}

// dx from g = dy, which is scaled and rounded first. A head's threads go through `run` consecutive tokens: one, or with a weight a
// tile, and then leave the sums of g xh in partials [tiles, H, D].
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    NormBackward(const T* x, const T* g, const float* weight, bool gain_centered, float epsilon,
                 float scale, T* dx, float* partials, std::int64_t tokens, int heads, int run) {
  constexpr int kChunks = kDim / kChunk;
  const std::int64_t index = ThreadIndex() / kChunks;  // of the head in the run of tokens
  const std::int64_t begin = index / heads * run;
  const int offset = static_cast<int>(ThreadIndex() % kChunks) * kChunk;
  float w[kChunk], sums[kChunk] = {};
  EffectiveWeight(weight, gain_centered, offset, w);
  for (std::int64_t t = begin; t < begin + run; ++t) {
    const std::int64_t at = (t * heads + index % heads) * kDim + offset;
    const bool mine = t < tokens;
    float xh[kChunk] = {}, h[kChunk] = {};
    if (mine) {
      LoadChunk(x + at, xh);
      LoadChunk(g + at, h);
    }
    const float r = ReciprocalRms<kDim>(xh, epsilon);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (scale != 1.0f) h[i] = Rounded<T>(__fmul_rn(h[i], scale));
      xh[i] = __fmul_rn(xh[i], r);
      if (mine) sums[i] = __fmaf_rn(h[i], xh[i], sums[i]);
      h[i] = __fmul_rn(h[i], w[i]);
    }
    const float mean = __fdiv_rn(HeadSum<kDim>(h, xh), static_cast<float>(kDim));
#pragma unroll
    for (int i = 0; i < kChunk; ++i) h[i] = __fmul_rn(r, __fmaf_rn(-xh[i], mean, h[i]));
    if (mine) StoreChunk(dx + at, h);
  }
  if (partials != nullptr && begin < tokens) {
    StoreChunk(partials + index * kDim + offset, sums);
  }
}

// The sum over i < count of from[i * stride] as a tree of neighbours, padded with +0 to `padded`, a
// power of two below 2^kMostLevels.
constexpr int kMostLevels = 16;
__device__ float NeighbourTree(const float* from, std::int64_t stride, std::int64_t count,
                               std::int64_t padded) {
  float waiting[kMostLevels] = {};  // by level, the left of two neighbours
  float sum = 0.0f;
  for (std::int64_t i = 0; i < padded; ++i) {
    sum = i < count ? LoadGlobal(from + i * stride) : 0.0f;
    bool completes = true;  // the right one of two neighbours
#pragma unroll
    for (int level = 0; level < kMostLevels;
         ++level) {  // unrolled, so that waiting is in registers
      if (!completes) continue;
      completes = ((i >> level) & 1) != 0;
      if (completes) {
        sum = __fadd_rn(waiting[level], sum);
      } else {
        waiting[level] = sum;
      }
    }
  }
  return sum;
}

// [tiles, G, D] from the partials of the heads of each group, [tiles, G, H/G, D].
__global__ void __launch_bounds__(kThreads)
    SumHeads(const float* partials, float* sums, std::int64_t groups, int heads, int padded,
             int dim) {
  const std::int64_t index = ThreadIndex(), group = index / dim;
  if (group >= groups) return;
  StoreGlobal(sums + index,
              NeighbourTree(partials + group * heads * dim + index % dim, dim, heads, padded));
}

// dweight [G, D] from [tiles, G, D]. A block takes a kv group; its rows of threads each take as many
// consecutive tiles, a subtree.
__global__ void SumTiles(const float* sums, float* dweight, std::int64_t stride, std::int64_t tiles,
                         std::int64_t padded, int groups, int dim) {
  HW_SHARED(float, subtrees, 1024);
  const int d = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const int slices = static_cast<int>(blockDim.y), group = static_cast<int>(blockIdx.x);
  const std::int64_t per_slice = padded / slices, first = slice * per_slice;
  const std::int64_t tile_stride = static_cast<std::int64_t>(groups) * dim;
  const std::int64_t left = tiles - first;
  subtrees[slice * dim + d] =
      NeighbourTree(sums + first * tile_stride + group * dim + d, tile_stride, left, per_slice);
  for (int step = 1; step < slices; step *= 2) {
    __syncthreads();
    if (slice % (2 * step) == 0) {
      subtrees[slice * dim + d] =
          __fadd_rn(subtrees[slice * dim + d], subtrees[(slice + step) * dim + d]);
    }
  }
  if (slice == 0) StoreGlobal(dweight + group * stride + d, subtrees[d]);
}

// --- RoPE ----------------------------------------------------------------------------------------

struct RopeTable {
  const float* cos;  // [length, D/2]
  const float* sin;
  std::int64_t length;
  const std::int64_t* positions;        // [T]
  unsigned long long* first_bad_token;  // NOLINT(google-runtime-int): atomicMin's type
};

// to = RoPE(from) by halves, or its transpose; nothing for a token whose position has no row in the
// table, the smallest of which is kept. A thread takes a chunk of the first half of a head
// and its partners in the second.
template <typename T, int kDim, bool kTransposed>
__global__ void __launch_bounds__(kThreads)
    Rope(const T* from, RopeTable table, T* to, std::int64_t tokens, int heads) {
  constexpr int kHalf = kDim / 2, kPairs = kHalf / kChunk;
  const std::int64_t head = ThreadIndex() / kPairs, t = head / heads;
  if (t >= tokens) return;
  const int offset = static_cast<int>(ThreadIndex() % kPairs) * kChunk;
  const std::int64_t position = LoadGlobal(table.positions + t);
  if (position < 0 || position >= table.length) {
    if (head % heads == 0 && offset == 0) {
      atomicMin(table.first_bad_token, static_cast<unsigned long long>(t));  // NOLINT
    }
    return;
  }
  const std::int64_t row = position * kHalf + offset;
  const std::int64_t at = head * kDim + offset;
  float c[kChunk], s[kChunk], a[kChunk], b[kChunk];
  LoadChunk(table.cos + row, c);
  LoadChunk(table.sin + row, s);
  LoadChunk(from + at, a);
  LoadChunk(from + at + kHalf, b);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float ac = __fmul_rn(a[i], c[i]), bs = __fmul_rn(b[i], s[i]);
    const float bc = __fmul_rn(b[i], c[i]), as = __fmul_rn(a[i], s[i]);
    a[i] = kTransposed ? __fadd_rn(ac, bs) : __fsub_rn(ac, bs);
    b[i] = kTransposed ? __fsub_rn(bc, as) : __fadd_rn(bc, as);
  }
  StoreChunk(to + at, a);
  StoreChunk(to + at + kHalf, b);
}

// --- A copy --------------------------------------------------------------------------------------

// Four vectors of a thread in flight.
constexpr int kCopyVectors = 4;
__global__ void __launch_bounds__(kThreads)
    Copy(const uint4* from, uint4* to, std::int64_t vectors) {
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kCopyVectors * kThreads + threadIdx.x;
  uint4 values[kCopyVectors];
#pragma unroll
  for (int i = 0; i < kCopyVectors; ++i) {
    const std::int64_t at = first + i * kThreads;
    if (at < vectors) values[i] = LoadStreaming(from + at);
  }
#pragma unroll
  for (int i = 0; i < kCopyVectors; ++i) {
    const std::int64_t at = first + i * kThreads;
    if (at < vectors) StoreStreaming(to + at, values[i]);
  }
}

// --- Launchers -----------------------------------------------------------------------------------

unsigned Blocks(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

bool Aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <typename T>
bool Plain(RowSpan<T> span) {
  return span.data == nullptr || (span.contiguous() && Aligned(span.data));
}

// The op, and the rows as the caller has looked at them.
template <typename T>
absl::Status CheckSupported(const QkvPreparation& op, const QkvInputs<T>& in,
                            const QkvLaunch& launch, bool rows_are_plain) {
  HW_RETURN_IF_ERROR(CheckUnfused(op));
  if (rows_are_plain && Plain(in.packed) && Aligned(in.q_weight.data()) &&
      Aligned(in.k_weight.data()) && Aligned(launch.cos) && Aligned(launch.sin)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      "the unfused CUDA kernels take contiguous rows, weights and tables that start on multiples "
      "of "
      "16 bytes");
}

Slots MakeSlots(const PackedQkv& layout) {
  return {.query_heads = static_cast<int>(layout.query_heads()),
          .kv_heads = static_cast<int>(layout.kv_heads()),
          .group_size = static_cast<int>(layout.group_size()),
          .interleaved = layout.packing() == Packing::kInterleavedPerKvGroup};
}

// One of q and k.
template <typename T, int kDim>
class Tensor {
 public:
  Tensor(const QkvPreparation& op, std::int64_t tokens, std::int64_t heads,
         absl::Span<const float> weight, float scale, const QkvLaunch& launch)
      : op_(op),
        tokens_(tokens),
        heads_(heads),
        chunks_(tokens * heads * (kDim / kChunk)),
        weight_(weight.empty() ? nullptr : weight.data()),
        scale_(scale),
        launch_(launch) {}

  absl::Status NormAndRope(const T* x, T* norm, T* out) const {
    HW_LAUNCH((NormForward<T, kDim>), Blocks(chunks_), kThreads, 0, launch_.stream, x, weight_,
              op_.norm == HeadNorm::kGainCentered, op_.epsilon, scale_,
              op_.rotary == nullptr ? out : norm, tokens_ * heads_);
    HW_RETURN_IF_ERROR(LaunchStatus("NormForward"));
    return op_.rotary == nullptr ? absl::OkStatus() : Turn<false>(norm, out);
  }

  // The partials of the heads are [tiles, heads, D].
  absl::Status NormAndRopeBackward(const T* x, const T* d, T* g, T* dx, float* partials) const {
    if (op_.rotary != nullptr) HW_RETURN_IF_ERROR(Turn<true>(d, g));
    const int run = weight_ == nullptr ? 1 : kTile;
    const std::int64_t threads = (tokens_ + run - 1) / run * heads_ * (kDim / kChunk);
    HW_LAUNCH((NormBackward<T, kDim>), Blocks(threads), kThreads, 0, launch_.stream, x,
              op_.rotary == nullptr ? d : g, weight_, op_.norm == HeadNorm::kGainCentered,
              op_.epsilon, scale_, dx, weight_ == nullptr ? nullptr : partials, tokens_,
              static_cast<int>(heads_), run);
    return LaunchStatus("NormBackward");
  }

  // dweight [G, D] from those partials; `scratch` has room for [tiles, G, D].
  absl::Status SumWeightGradient(const float* partials, float* scratch,
                                 RowSpan<float> dweight) const {
    const std::int64_t tiles = (tokens_ + kTile - 1) / kTile;
    const std::int64_t groups = op_.layout.kv_heads(), group_size = heads_ / groups;
    if (group_size > 1 && tiles > 0) {
      HW_LAUNCH(SumHeads, Blocks(tiles * groups * kDim), kThreads, 0, launch_.stream, partials,
                scratch, tiles * groups, static_cast<int>(group_size),
                static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(group_size))), kDim);
      HW_RETURN_IF_ERROR(LaunchStatus("SumHeads"));
      partials = scratch;
    }
    const auto padded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tiles)));
    const std::int64_t slices = std::min<std::int64_t>(padded, 1024 / kDim);
    HW_LAUNCH(SumTiles, static_cast<unsigned>(groups), dim3(kDim, static_cast<unsigned>(slices)), 0,
              launch_.stream, partials, dweight.data, dweight.stride, tiles, padded,
              static_cast<int>(groups), kDim);
    return LaunchStatus("SumTiles");
  }

 private:
  template <bool kTransposed>
  absl::Status Turn(const T* from, T* to) const {
    const RopeTable table = {.cos = launch_.cos,
                             .sin = launch_.sin,
                             .length = op_.rotary->length(),
                             .positions = launch_.positions,
                             .first_bad_token = reinterpret_cast<unsigned long long*>(
                                 launch_.first_bad_token)};  // NOLINT
    HW_LAUNCH((Rope<T, kDim, kTransposed>), Blocks(chunks_ / 2), kThreads, 0, launch_.stream, from,
              table, to, tokens_, static_cast<int>(heads_));
    return LaunchStatus("Rope");
  }

  const QkvPreparation& op_;
  std::int64_t tokens_, heads_, chunks_;
  const float* weight_;
  float scale_;
  const QkvLaunch& launch_;
};

// q, k and v from packed; v may be null.
template <typename T>
absl::Status Split(const PackedQkv& layout, RowSpan<const T> packed, T* q, T* k, T* v,
                   CUstream_st* stream) {
  HW_LAUNCH((MoveHeads<true, T, const T, T>), Blocks(packed.rows * layout.row_width() / kChunk),
            kThreads, 0, stream, packed.data, q, k, v, packed.rows, MakeSlots(layout),
            static_cast<int>(layout.head_dim()));
  return LaunchStatus("MoveHeads");
}

template <typename T, int kDim>
absl::Status Forward(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                     const UnfusedWorkspace<T>& workspace, const QkvLaunch& launch) {
  const PackedQkv& layout = op.layout;
  const std::int64_t tokens = in.packed.rows;
  if (tokens == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(
      Split<T>(layout, in.packed, workspace.q, workspace.k, out.v.data, launch.stream));
  const Tensor<T, kDim> q(op, tokens, layout.query_heads(), in.q_weight, op.query_scale, launch);
  const Tensor<T, kDim> k(op, tokens, layout.kv_heads(), in.k_weight, 1.0f, launch);
  HW_RETURN_IF_ERROR(q.NormAndRope(workspace.q, workspace.q_norm, out.q.data));
  return k.NormAndRope(workspace.k, workspace.k_norm, out.k.data);
}

template <typename T, int kDim>
absl::Status Backward(const QkvPreparation& op, const QkvInputs<T>& in,
                      const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                      const UnfusedWorkspace<T>& workspace, const QkvLaunch& launch) {
  const PackedQkv& layout = op.layout;
  const std::int64_t tokens = in.packed.rows, tiles = (tokens + kTile - 1) / kTile;
  float* const k_partials = workspace.partials + tiles * layout.query_heads() * kDim;
  float* const scratch = k_partials + tiles * layout.kv_heads() * kDim;
  const Tensor<T, kDim> q(op, tokens, layout.query_heads(), in.q_weight, op.query_scale, launch);
  const Tensor<T, kDim> k(op, tokens, layout.kv_heads(), in.k_weight, 1.0f, launch);
  if (tokens > 0) {
    HW_RETURN_IF_ERROR(q.NormAndRopeBackward(workspace.q, gradients.dq.data, workspace.q_norm,
                                             workspace.dq, workspace.partials));
    HW_RETURN_IF_ERROR(k.NormAndRopeBackward(workspace.k, gradients.dk.data, workspace.k_norm,
                                             workspace.dk, k_partials));
  }
  if (HasWeight(op.norm)) {
    HW_RETURN_IF_ERROR(q.SumWeightGradient(workspace.partials, scratch, out.dq_weight_per_group));
    HW_RETURN_IF_ERROR(k.SumWeightGradient(k_partials, scratch, out.dk_weight_per_group));
  }
  if (tokens == 0) return absl::OkStatus();
  HW_LAUNCH((MoveHeads<false, T, T, const T>), Blocks(tokens * layout.row_width() / kChunk),
            kThreads, 0, launch.stream, out.dpacked.data, workspace.dq, workspace.dk,
            gradients.dv.data, tokens, MakeSlots(layout), kDim);
  return LaunchStatus("MoveHeads");
}

}  // namespace

template <typename T>
absl::Status PrepareQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                               const QkvOutputs<T>& out, const UnfusedWorkspace<T>& workspace,
                               const QkvLaunch& launch) {
  HW_RETURN_IF_ERROR(CheckSupported(op, in, launch, Plain(out.q) && Plain(out.k) && Plain(out.v)));
  const auto f = op.layout.head_dim() == 64 ? Forward<T, 64> : Forward<T, 128>;
  return f(op, in, out, workspace, launch);
}

template <typename T>
absl::Status PrepareQkvBackwardUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                                       const QkvGradients<T>& gradients,
                                       const PackedGradients<T>& out,
                                       const UnfusedWorkspace<T>& workspace,
                                       const QkvLaunch& launch) {
  HW_RETURN_IF_ERROR(CheckSupported(
      op, in, launch,
      Plain(gradients.dq) && Plain(gradients.dk) && Plain(gradients.dv) && Plain(out.dpacked)));
  const auto f = op.layout.head_dim() == 64 ? Backward<T, 64> : Backward<T, 128>;
  return f(op, in, gradients, out, workspace, launch);
}

template <typename T>
absl::Status SplitQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                             const UnfusedWorkspace<T>& workspace, const QkvLaunch& launch) {
  HW_RETURN_IF_ERROR(CheckSupported(op, in, launch, true));
  if (in.packed.rows == 0) return absl::OkStatus();
  return Split<T>(op.layout, in.packed, workspace.q, workspace.k, nullptr, launch.stream);
}

absl::Status CopyVectors(const void* from, void* to, std::int64_t bytes, CUstream_st* stream) {
  if (bytes == 0) return absl::OkStatus();
  const std::int64_t vectors = bytes / std::int64_t{sizeof(uint4)};
  HW_LAUNCH(Copy, Blocks((vectors + kCopyVectors - 1) / kCopyVectors), kThreads, 0, stream,
            static_cast<const uint4*>(from), static_cast<uint4*>(to), vectors);
  return LaunchStatus("Copy");
}

#define HW_INSTANTIATE(T)                                                                   \
  template absl::Status PrepareQkvUnfused(const QkvPreparation&, const QkvInputs<T>&,       \
                                          const QkvOutputs<T>&, const UnfusedWorkspace<T>&, \
                                          const QkvLaunch&);                                \
  template absl::Status SplitQkvUnfused(const QkvPreparation&, const QkvInputs<T>&,         \
                                        const UnfusedWorkspace<T>&, const QkvLaunch&);      \
  template absl::Status PrepareQkvBackwardUnfused(                                          \
      const QkvPreparation&, const QkvInputs<T>&, const QkvGradients<T>&,                   \
      const PackedGradients<T>&, const UnfusedWorkspace<T>&, const QkvLaunch&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
#undef HW_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
