#ifndef HEADWISE_TESTS_THIRD_PARTY_TRIPLE_LAUNCH_H_
#define HEADWISE_TESTS_THIRD_PARTY_TRIPLE_LAUNCH_H_

// A plain C++ header that both nvcc and the C++ compiler read, to see that a cuda_library passes
// its deps on.

namespace headwise::testing {

// Blocks of `threads` that cover n elements.
constexpr int BlocksFor(int n, int threads) { return (n + threads - 1) / threads; }

}  // namespace headwise::testing

#endif  // HEADWISE_TESTS_THIRD_PARTY_TRIPLE_LAUNCH_H_
