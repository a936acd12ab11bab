#include <cstdint>

#include "core/base/check.h"
#include "core/tensor/row_span.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

struct AdamWBody {
  static constexpr bool kFlattens = true;
  const AdamWFactors<float>* factors;
  float* weight;
  float* m;
  float* v;
  const float* gradient;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t /*row*/, std::int64_t i) const {
    if (LoadCached(&factors->skip) != 0) return;
    const Fp32 a = LoadCached(&factors->a), b = LoadCached(&factors->b);
    const Fp32 decay = LoadCached(&factors->decay), epsilon = LoadCached(&factors->epsilon);
    const Fp32 p = LoadCached(&factors->p), q = LoadCached(&factors->q);
    const Fp32 scale = LoadCached(&factors->gradient_scale);
    Fp32 weights[N], ms[N], vs[N], gradients[N];
    LoadElements(weight + i, weights);
    LoadElements(m + i, ms);
    LoadElements(v + i, vs);
    LoadElements(gradient + i, gradients);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const Fp32 g = gradients[k] * scale;  // by 1 it keeps every bit
      ms[k] = Fma(a, g - ms[k], ms[k]);
      vs[k] = Fma(b, Fma(g, g, -vs[k]), vs[k]);
      weights[k] = Fma(-p, ms[k] / Fma(Sqrt(vs[k]), q, epsilon), weights[k] * decay);
    }
    StoreElements(weight + i, weights);
    StoreElements(m + i, ms);
    StoreElements(v + i, vs);
  }
};

}  // namespace

absl::Status AdamWStep(const AdamWFactors<float>* factors, absl::Span<float> weight,
                       absl::Span<float> m, absl::Span<float> v, absl::Span<const float> gradient,
                       CUstream_st* stream) {
  HW_CHECK_EQ(m.size(), weight.size());
  HW_CHECK_EQ(v.size(), weight.size());
  HW_CHECK_EQ(gradient.size(), weight.size());
  HW_CHECK(factors != nullptr) << "factors";
  const auto row = [](auto span) {
    return RowSpan(span.data(), 1, static_cast<std::int64_t>(span.size()));
  };
  const AdamWBody body = {factors, weight.data(), m.data(), v.data(), gradient.data()};
  return MapRows("AdamWStep", body, stream, /*aligned=*/true, row(weight), row(m), row(v),
                 row(gradient));
}

}  // namespace headwise::HW_CUDA_NAMESPACE
