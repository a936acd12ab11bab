// VocabularyShard: which ids of a vocabulary a kernel's rows or columns are, where a table or the
// logits are cut along the vocabulary.
//
//   const VocabularyShard shard = {.begin = 1000, .vocabulary = 4000};   // ids from 1000 on, of 4000
//   CheckVocabularyShard(shard, table.rows);
//   const std::int64_t row = LocalIndex(shard, table.rows, token);       // -1: another shard's
#ifndef HEADWISE_KERNELS_COMMON_VOCABULARY_SHARD_H_
#define HEADWISE_KERNELS_COMMON_VOCABULARY_SHARD_H_

#include <cstdint>

#include "core/base/check.h"

namespace headwise {

// Ids [begin, begin + size) of [0, vocabulary); the size, which may be 0, is what the kernel was
// given. By default the whole vocabulary.
struct VocabularyShard {
  std::int64_t begin = 0;
  std::int64_t vocabulary = 0;  // ids of the whole; 0: as many as the shard has
};

// Returns the ids of the whole. A shard that does not lie within them fails an HW_CHECK.
inline std::int64_t CheckVocabularyShard(VocabularyShard shard, std::int64_t size) {
  const std::int64_t vocabulary = shard.vocabulary == 0 ? size : shard.vocabulary;
  HW_CHECK(shard.begin >= 0 && size <= vocabulary - shard.begin)
      << "ids [" << shard.begin << ", " << shard.begin + size << ") of a vocabulary of "
      << vocabulary;
  return vocabulary;
}

// The place of `id` in the shard, or -1 if another shard holds it.
inline std::int64_t LocalIndex(VocabularyShard shard, std::int64_t size, std::int64_t id) {
  const std::int64_t index = id - shard.begin;
  return index >= 0 && index < size ? index : -1;
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_VOCABULARY_SHARD_H_
