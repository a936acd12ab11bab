#include "kernels/prepare_qkv/cpu.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/common/reductions.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/prepare_qkv/cpu_any_head.h"
#include "kernels/prepare_qkv/cpu_four_heads.h"
#include "kernels/prepare_qkv/cpu_heads.h"
#include "kernels/prepare_qkv/cpu_lanes.h"

namespace headwise {
namespace {

using internal::AnyHeadKernel;
using internal::FourHeadsKernel;
using internal::KeyHeads;
using internal::QueryHeads;

constexpr std::int64_t kForwardTile = 16;  // tokens a thread takes at once; no bit depends on it

// Outputs at least this large bypass the caches: nobody could read them back from there.
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;

// Whether every head of `span` starts on a multiple of 64 bytes.
template <typename T>
bool HeadsAlignedTo64(RowSpan<T> span, std::int64_t head_dim) {
  return reinterpret_cast<std::uintptr_t>(span.data) % 64 == 0 &&
         span.stride * sizeof(T) % 64 == 0 && head_dim * sizeof(T) % 64 == 0;
}

// Makes streamed stores visible to the thread that waits for this one.
void FenceStreamedStores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <typename T>
void CopyHead(const T* from, T* to, std::int64_t dim, bool stream) {
  const char* source = reinterpret_cast<const char*>(from);
  char* target = reinterpret_cast<char*>(to);
  std::int64_t left = dim * sizeof(T);
  for (; stream && left >= 64; left -= 64, source += 64, target += 64) {
    internal::Store64(target, internal::Load64(source), true);
  }
  std::memcpy(target, source, left);
}

// f.operator()<Kernel>() with the kernel for the shape.
template <typename T, typename F>
void WithKernel(const QkvPreparation& op, F f) {
  if (FourHeadsKernel<T, 64>::Supports(op)) {
    f.template operator()<FourHeadsKernel<T, 64>>();
  } else if (FourHeadsKernel<T, 128>::Supports(op)) {
    f.template operator()<FourHeadsKernel<T, 128>>();
  } else {
    f.template operator()<AnyHeadKernel<T>>();
  }
}

// dweight_per_group[g] = tree over the heads of group g of what the kernel summed in a tile. `sums`
// is Kernel's, to [G, D].
template <typename Kernel>
void SumOverHeads(const Kernel& kernel, const float* sums, std::int64_t groups,
                  std::int64_t heads_per_group, std::int64_t dim, float* to) {
  ThreadScratch scratch;
  const RowSpan<float> heads(scratch.Take<float>(heads_per_group * dim), heads_per_group, dim);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t j = 0; j < heads_per_group; ++j) {
      for (std::int64_t d = 0; d < dim; ++d) {
        heads.row(j)[d] = kernel.SumAt(sums, g * heads_per_group + j, d);
      }
    }
    AdjacentPairTreeOfRows(heads);
    std::copy_n(heads.row(0), dim, to + g * dim);
  }
}

}  // namespace

template <typename T>
void PrepareQkvCpu(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                   ThreadPool& pool) {
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
  const bool stream = static_cast<std::int64_t>(in.packed.size() * sizeof(T)) >= kStreamBytes &&
                      HeadsAlignedTo64(out.q, dim) && HeadsAlignedTo64(out.k, dim) &&
                      HeadsAlignedTo64(out.v, dim);
  WithKernel<T>(op, [&]<typename Kernel>() {
    const Kernel q_kernel(op, QueryHeads(op, in), stream);
    const Kernel k_kernel(op, KeyHeads(op, in), stream);
    pool.ParallelFor((tokens + kForwardTile - 1) / kForwardTile, [&](std::int64_t tile) {
      typename Kernel::Turn turn;
      const std::int64_t end = std::min(tokens, (tile + 1) * kForwardTile);
      for (std::int64_t t = tile * kForwardTile; t < end; ++t) {
        const T* packed = in.packed.row(t);
        const T* next = in.packed.row(std::min(t + 1, tokens - 1));
        if (op.rotary != nullptr) Kernel::SetTurn(*op.rotary, in.positions[t], turn);
        q_kernel.Forward(packed, next, turn, out.q.row(t));
        k_kernel.Forward(packed, next, turn, out.k.row(t));
        if (out.v.data == nullptr) continue;
        for (std::int64_t g = 0; g < op.layout.kv_heads(); ++g) {
          CopyHead(packed + op.layout.ValueSlot(g) * dim, out.v.row(t) + g * dim, dim, stream);
        }
      }
      if (stream) FenceStreamedStores();
    });
  });
}

template <typename T>
void PrepareQkvBackwardCpu(const QkvPreparation& op, const QkvInputs<T>& in,
                           const QkvGradients<T>& d, const PackedGradients<T>& out,
                           ThreadPool& pool) {
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
  const std::int64_t groups = op.layout.kv_heads();
  const bool stream = static_cast<std::int64_t>(in.packed.size() * sizeof(T)) >= kStreamBytes &&
                      HeadsAlignedTo64(out.dpacked, dim);
  const bool weighted = HasWeight(op.norm);
  // What each tile of tokens adds to the weights' gradients, [tiles, 2 (q, k), G, D]. One tile of
  // +0 if there are no tokens.
  const std::int64_t tiles = (tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  const std::int64_t tile_width = 2 * groups * dim;
  std::vector<float> partials(weighted ? std::max<std::int64_t>(tiles, 1) * tile_width : 0);

  WithKernel<T>(op, [&]<typename Kernel>() {
    const Kernel q_kernel(op, QueryHeads(op, in), stream);
    const Kernel k_kernel(op, KeyHeads(op, in), stream);
    pool.ParallelFor(tiles, [&](std::int64_t tile) {
      typename Kernel::Turn turn;
      ThreadScratch scratch;
      float* q_sums = nullptr;
      float* k_sums = nullptr;
      if (weighted) {
        q_sums = scratch.Take<float>(q_kernel.SumsSize());
        k_sums = scratch.Take<float>(k_kernel.SumsSize());
        std::fill_n(q_sums, q_kernel.SumsSize(), 0.0f);
        std::fill_n(k_sums, k_kernel.SumsSize(), 0.0f);
      }
      const std::int64_t end = std::min(tokens, (tile + 1) * kWeightGradientTile);
      for (std::int64_t t = tile * kWeightGradientTile; t < end; ++t) {
        const T* packed = in.packed.row(t);
        T* dpacked = out.dpacked.row(t);
        const std::int64_t next = std::min(t + 1, tokens - 1);
        if (op.rotary != nullptr) Kernel::SetTurn(*op.rotary, in.positions[t], turn);
        q_kernel.Backward(packed, d.dq.row(t), in.packed.row(next), d.dq.row(next), turn, dpacked,
                          q_sums);
        k_kernel.Backward(packed, d.dk.row(t), in.packed.row(next), d.dk.row(next), turn, dpacked,
                          k_sums);
        for (std::int64_t g = 0; g < groups; ++g) {
          CopyHead(d.dv.row(t) + g * dim, dpacked + op.layout.ValueSlot(g) * dim, dim, stream);
        }
      }
      if (stream) FenceStreamedStores();
      if (!weighted) return;
      float* partial = partials.data() + tile * tile_width;
      SumOverHeads(q_kernel, q_sums, groups, op.layout.group_size(), dim, partial);
      SumOverHeads(k_kernel, k_sums, groups, 1, dim, partial + groups * dim);
    });
  });

  if (!weighted) return;
  pool.ParallelFor(2 * groups, [&](std::int64_t i) {
    const RowSpan<float> leaves(partials.data() + i * dim, std::max<std::int64_t>(tiles, 1), dim,
                                tile_width);
    AdjacentPairTreeOfRows(leaves);
    float* total =
        i < groups ? out.dq_weight_per_group.row(i) : out.dk_weight_per_group.row(i - groups);
    std::copy_n(leaves.row(0), dim, total);
  });
}

#define HW_INSTANTIATE(T)                                                                       \
  template void PrepareQkvCpu(const QkvPreparation&, const QkvInputs<T>&, const QkvOutputs<T>&, \
                              ThreadPool&);                                                     \
  template void PrepareQkvBackwardCpu(const QkvPreparation&, const QkvInputs<T>&,               \
                                      const QkvGradients<T>&, const PackedGradients<T>&,        \
                                      ThreadPool&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
#undef HW_INSTANTIATE

}  // namespace headwise
