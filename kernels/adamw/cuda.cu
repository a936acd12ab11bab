#include <cstdint>

#include "core/base/check.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/cuda/find_entry.cuh"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

using adamw::kBlockElements;
using adamw::TableEntry;

constexpr int kThreads = 256;
constexpr int kVector = 4;  // elements, in 16 bytes

struct Factors {
  Fp32 a, b, decay, epsilon, p, q, scale;
};

// The elements that a thread block updates.
struct Elements {
  float* weight;
  float* m;
  float* v;
  const float* gradient;
};

// N floats that the step touches once; p is a multiple of 16 bytes where N is 4.
template <int N>
__device__ __forceinline__ void Load(const float* p, Fp32 (&x)[N]) {
  if constexpr (N == kVector) {
    const float4 v = LoadStreaming(reinterpret_cast<const float4*>(p));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else {
    x[0] = LoadStreaming(p);
  }
}
template <int N>
__device__ __forceinline__ void Store(float* p, const Fp32 (&x)[N]) {
  if constexpr (N == kVector) {
    StoreStreaming(reinterpret_cast<float4*>(p),
                   make_float4(x[0].value, x[1].value, x[2].value, x[3].value));
  } else {
    StoreStreaming(p, x[0].value);
  }
}

template <int N>
__device__ __forceinline__ void Update(const Factors& f, const Elements& e, int i) {
  Fp32 weights[N], ms[N], vs[N], gradients[N];
  Load(e.weight + i, weights);
  Load(e.m + i, ms);
  Load(e.v + i, vs);
  Load(e.gradient + i, gradients);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const Fp32 g = gradients[k] * f.scale;  // by 1 it keeps every bit
    ms[k] = Fma(f.a, g - ms[k], ms[k]);
    vs[k] = Fma(f.b, Fma(g, g, -vs[k]), vs[k]);
    weights[k] = Fma(-f.p, ms[k] / Fma(Sqrt(vs[k]), f.q, f.epsilon), weights[k] * f.decay);
  }
  Store(e.weight + i, weights);
  Store(e.m + i, ms);
  Store(e.v + i, vs);
}

__global__ void __launch_bounds__(kThreads, 5)
    AdamWKernel(const TableEntry* entries, std::int64_t parameters,
                const AdamWFactors<float>* factors) {
  if (LoadCached(&factors->skip) != 0) return;
  const Factors f = {.a = LoadCached(&factors->a),
                     .b = LoadCached(&factors->b),
                     .decay = LoadCached(&factors->decay),
                     .epsilon = LoadCached(&factors->epsilon),
                     .p = LoadCached(&factors->p),
                     .q = LoadCached(&factors->q),
                     .scale = LoadCached(&factors->gradient_scale)};
  const TableEntry* const entry =
      FindEntry<&TableEntry::first_block>(entries, parameters, blockIdx.x);
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - LoadCached(&entry->first_block)) * kBlockElements;
  const std::uintptr_t weight = LoadCached(&entry->weight), m = LoadCached(&entry->m),
                       v = LoadCached(&entry->v), gradient = LoadCached(&entry->gradient);
  const Elements e = {.weight = reinterpret_cast<float*>(weight) + first,
                      .m = reinterpret_cast<float*>(m) + first,
                      .v = reinterpret_cast<float*>(v) + first,
                      .gradient = reinterpret_cast<const float*>(gradient) + first};
  const int count = static_cast<int>(min(static_cast<long long>(kBlockElements),
                                         static_cast<long long>(LoadCached(&entry->size) - first)));
  const bool aligned = (weight | m | v | gradient) % (kVector * sizeof(float)) == 0;
  const int in_vectors = aligned ? count - count % kVector : 0;
#pragma unroll 1
  for (int i = threadIdx.x * kVector; i < in_vectors; i += kThreads * kVector) {
    Update<kVector>(f, e, i);
  }
#pragma unroll 1
  for (int i = in_vectors + threadIdx.x; i < count; i += kThreads) Update<1>(f, e, i);
}

}  // namespace

absl::Status AdamWStep(const AdamWPlan& plan, const AdamWLaunch& launch) {
  if (plan.blocks() == 0) return absl::OkStatus();
  HW_CHECK(launch.table != nullptr) << "table";
  HW_CHECK(launch.factors != nullptr) << "factors";
  HW_LAUNCH(AdamWKernel, static_cast<unsigned>(plan.blocks()), kThreads, 0, launch.stream,
            reinterpret_cast<const TableEntry*>(launch.table), plan.parameters(), launch.factors);
  return LaunchStatus("AdamWStep");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
