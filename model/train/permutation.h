// PermutedIndex: a random order of [0, n) that takes no memory, whatever n.
//
// A balanced Feistel network on the smallest even number of bits that holds n, with cycle walking
// (Black and Rogaway, 2002): the network permutes [0, 2^b), and indices that fall outside [0, n)
// are permuted again until they fall inside.
#ifndef HEADWISE_MODEL_TRAIN_PERMUTATION_H_
#define HEADWISE_MODEL_TRAIN_PERMUTATION_H_

#include <cstdint>

namespace headwise {

// Where index i of [0, n) goes in the order that `key` names; a bijection of [0, n). 0 <= i < n
// (checked).
std::uint64_t PermutedIndex(std::uint64_t key, std::uint64_t n, std::uint64_t i);

// A 64-bit mix of two numbers, for deriving keys.
std::uint64_t MixKeys(std::uint64_t a, std::uint64_t b);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_PERMUTATION_H_
