#ifndef HEADWISE_TESTS_THIRD_PARTY_TRIPLE_H_
#define HEADWISE_TESTS_THIRD_PARTY_TRIPLE_H_

// What triple.cu offers to C++ code that knows nothing of CUDA.

namespace headwise::testing {

// y[i] = 3 * x[i] + y[i] on the GPU, i < n, product and sum rounded separately. x and y are host
// memory. Returns a cudaError_t: 0 on success, and not 0 where there is no GPU; y is then as it
// was.
int TripleAndAdd(const float* x, float* y, int n);

}  // namespace headwise::testing

#endif  // HEADWISE_TESTS_THIRD_PARTY_TRIPLE_H_
