// headwise::cuda's launcher, by the emulated kernels: for programs that are tried without a GPU.
#include "kernels/adamw/cuda.h"

namespace headwise::cuda {

absl::Status AdamWStep(const AdamWFactors<float>* factors, absl::Span<float> weight,
                       absl::Span<float> m, absl::Span<float> v, absl::Span<const float> gradient,
                       CUstream_st* stream) {
  return cuda_emulated::AdamWStep(factors, weight, m, v, gradient, stream);
}

}  // namespace headwise::cuda
