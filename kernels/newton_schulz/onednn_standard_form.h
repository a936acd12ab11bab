// What the benchmarks measure against: Newton-Schulz in the standard form, through oneDNN.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_ONEDNN_STANDARD_FORM_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_ONEDNN_STANDARD_FORM_H_

#include <cstdint>
#include <memory>

#include "kernels/newton_schulz/coefficients.h"

namespace headwise::newton_schulz {

// X <- X / |X|, then at every step A = X X^T, B = b A + c A A + a I, X = B X, over a batch of
// blocks of one shape d x n, d <= n, in fp32. oneDNN adds b A while it multiplies; a goes on the
// diagonal.
class OneDnnStandardForm {
 public:
  // Threads are OpenMP's.
  OneDnnStandardForm(const NewtonSchulzCoefficients& coefficients, std::int64_t batch,
                     std::int64_t d, std::int64_t n, int threads);
  ~OneDnnStandardForm();

  // input, output [batch, d, n]
  void Run(const float* input, float* output);

  // 5 (4 d^2 n + 2 d^3) for five steps.
  double flops() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Multiplies two matrices of 1024 x 1024 and returns the FLOP/s of this one product.
class OneDnnGemmRate {
 public:
  explicit OneDnnGemmRate(int threads);
  ~OneDnnGemmRate();
  double Measure();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_ONEDNN_STANDARD_FORM_H_
