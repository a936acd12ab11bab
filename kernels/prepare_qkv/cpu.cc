#include "kernels/prepare_qkv/cpu.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/common/simd.h"
#include "kernels/prepare_qkv/cpu_any_head.h"
#include "kernels/prepare_qkv/cpu_four_heads.h"

namespace headwise {
namespace {

using internal::AnyHeadKernel;
using internal::FourHeadsKernel;
using internal::HeadList;
using internal::KeyHeads;
using internal::QueryHeads;

constexpr std::int64_t kForwardTile = 16;  // tokens a thread takes at once; no bit depends on it

// Outputs at least this large bypass the caches: nobody could read them back from there.
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;

template <typename T>
bool AlignedTo64(RowSpan<T> span) {
  return reinterpret_cast<std::uintptr_t>(span.data) % 64 == 0 && span.stride * sizeof(T) % 64 == 0;
}

// Streamed stores become visible to the thread that waits for this one.
void FenceStreamedStores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <typename T>
void CopyHead(const T* from, T* to, std::int64_t dim, bool stream) {
  std::int64_t i = 0;
  const std::int64_t bytes = dim * sizeof(T);
  if (stream) {
    for (; i + 64 <= bytes; i += 64) {
      F16 v;
      std::memcpy(&v, reinterpret_cast<const char*>(from) + i, 64);
      internal::Store64<true>(reinterpret_cast<char*>(to) + i, v);
    }
  }
  std::memcpy(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(from) + i, bytes - i);
}

// Sum of `count` vectors p[i * stride], i = 0.., of D values each: neighbours first, padded with +0
// to a power of two. The result is in p[0].
void AdjacentPairTree(float* p, std::int64_t count, std::int64_t stride, std::int64_t dim) {
  for (std::int64_t step = 1; step < count; step *= 2) {
    for (std::int64_t i = 0; i < count; i += 2 * step) {
      float* a = p + i * stride;
      const float* b = i + step < count ? p + (i + step) * stride : nullptr;
      for (std::int64_t d = 0; d < dim; ++d) a[d] = a[d] + (b == nullptr ? 0.0f : b[d]);
    }
  }
}

template <typename Kernel, typename T>
void Forward(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
             const Kernel& q_kernel, const Kernel& k_kernel, bool stream, ThreadPool& pool) {
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
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
}

template <typename Kernel, typename T>
void Backward(const QkvPreparation& op, const QkvInputs<T>& in, const QkvGradients<T>& d,
              const PackedGradients<T>& out, const Kernel& q_kernel, const Kernel& k_kernel,
              bool stream, ThreadPool& pool) {
  const std::int64_t tokens = in.packed.rows;
  const std::int64_t dim = op.layout.head_dim();
  const std::int64_t groups = op.layout.kv_heads();
  const std::int64_t group_size = op.layout.group_size();
  const std::int64_t tiles = (tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  const bool weighted = HasWeight(op.norm);
  // Sums over a tile and the heads of a group: [tiles, 2 (q, k), G, D].
  const std::int64_t tile_stride = 2 * groups * dim;
  std::vector<float> partials(weighted ? std::max<std::int64_t>(tiles, 1) * tile_stride : 0);

  pool.ParallelFor(tiles, [&](std::int64_t tile) {
    typename Kernel::Turn turn;
    std::vector<float> q_sums(weighted ? q_kernel.SumsSize() : 0);
    std::vector<float> k_sums(weighted ? k_kernel.SumsSize() : 0);
    const std::int64_t end = std::min(tokens, (tile + 1) * kWeightGradientTile);
    for (std::int64_t t = tile * kWeightGradientTile; t < end; ++t) {
      const std::int64_t next = std::min(t + 1, tokens - 1);
      if (op.rotary != nullptr) Kernel::SetTurn(*op.rotary, in.positions[t], turn);
      q_kernel.Backward(in.packed.row(t), d.dq.row(t), in.packed.row(next), d.dq.row(next), turn,
                        out.dpacked.row(t), weighted ? q_sums.data() : nullptr);
      k_kernel.Backward(in.packed.row(t), d.dk.row(t), in.packed.row(next), d.dk.row(next), turn,
                        out.dpacked.row(t), weighted ? k_sums.data() : nullptr);
      for (std::int64_t g = 0; g < groups; ++g) {
        CopyHead(d.dv.row(t) + g * dim, out.dpacked.row(t) + op.layout.ValueSlot(g) * dim, dim,
                 stream);
      }
    }
    if (stream) FenceStreamedStores();
    if (!weighted) return;
    std::vector<float> heads(group_size * dim);
    float* q_partial = partials.data() + tile * tile_stride;
    float* k_partial = q_partial + groups * dim;
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t j = 0; j < group_size; ++j) {
        for (std::int64_t i = 0; i < dim; ++i) {
          heads[j * dim + i] = q_kernel.SumAt(q_sums.data(), g * group_size + j, i);
        }
      }
      AdjacentPairTree(heads.data(), group_size, dim, dim);
      std::copy_n(heads.data(), dim, q_partial + g * dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        k_partial[g * dim + i] = k_kernel.SumAt(k_sums.data(), g, i);
      }
    }
  });

  if (!weighted) return;
  pool.ParallelFor(2 * groups, [&](std::int64_t i) {
    float* partial = partials.data() + i * dim;
    AdjacentPairTree(partial, tiles, tile_stride, dim);
    std::copy_n(
        partial, dim,
        i < groups ? out.dq_weight_per_group.row(i) : out.dk_weight_per_group.row(i - groups));
  });
}

}  // namespace

template <typename T>
void PrepareQkvCpu(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                   ThreadPool& pool) {
  const auto run = [&]<typename Kernel>(bool stream, auto... args) {
    Forward(op, in, out, Kernel(op, QueryHeads(op, in), args...),
            Kernel(op, KeyHeads(op, in), args...), stream, pool);
  };
  const bool stream = static_cast<std::int64_t>(in.packed.size() * sizeof(T)) >= kStreamBytes &&
                      AlignedTo64(out.q) && AlignedTo64(out.k) && AlignedTo64(out.v) &&
                      op.layout.head_dim() * sizeof(T) % 64 == 0;
  if (FourHeadsKernel<T, 64>::Supports(op)) {
    run.template operator()<FourHeadsKernel<T, 64>>(stream, stream);
  } else if (FourHeadsKernel<T, 128>::Supports(op)) {
    run.template operator()<FourHeadsKernel<T, 128>>(stream, stream);
  } else {
    run.template operator()<AnyHeadKernel<T>>(false);
  }
}

template <typename T>
void PrepareQkvBackwardCpu(const QkvPreparation& op, const QkvInputs<T>& in,
                           const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                           ThreadPool& pool) {
  const auto run = [&]<typename Kernel>(bool stream, auto... args) {
    Backward(op, in, gradients, out, Kernel(op, QueryHeads(op, in), args...),
             Kernel(op, KeyHeads(op, in), args...), stream, pool);
  };
  const bool stream = static_cast<std::int64_t>(in.packed.size() * sizeof(T)) >= kStreamBytes &&
                      AlignedTo64(out.dpacked) && op.layout.head_dim() * sizeof(T) % 64 == 0;
  if (FourHeadsKernel<T, 64>::Supports(op)) {
    run.template operator()<FourHeadsKernel<T, 64>>(stream, stream);
  } else if (FourHeadsKernel<T, 128>::Supports(op)) {
    run.template operator()<FourHeadsKernel<T, 128>>(stream, stream);
  } else {
    run.template operator()<AnyHeadKernel<T>>(false);
  }
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
