// Pairwise designs: test cases in which every level of a factor meets every level of every other
// factor at least once, in far fewer cases than all combinations.
//
//   const auto cases = PairwiseDesign({3, 2, 11});   // numbers of levels
//   cases[0];                                        // {2, 0, 7}: a level for each factor
#ifndef HEADWISE_KERNELS_COMMON_TESTING_PAIRWISE_H_
#define HEADWISE_KERNELS_COMMON_TESTING_PAIRWISE_H_

#include <cstdint>
#include <vector>

namespace headwise {

// The same cases for the same arguments, everywhere. Every number of levels is at least 1; at least
// two factors. Greedy: not the smallest design, but near it.
std::vector<std::vector<int>> PairwiseDesign(const std::vector<int>& levels,
                                             std::uint64_t seed = 1);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_PAIRWISE_H_
