// sharded_cross_entropy: the loss of cross_entropy.h where the logits are cut along the vocabulary,
// in steps between which the caller makes one result of all shards'. Nothing here knows of ranks.
//
//   const VocabularyShard shard = {.begin = begin, .vocabulary = V};   // ids of z's columns
//   ShardMaxima<float>(op, z, maxima, pool);
//   ...                                       // gather the shards' maxima: LargestOfShards()
//   ShardSums<float>(op, z, targets, shard, maxima, sums, target_logits, pool);
//   ...                                       // add the shards' sums, and their target_logits
//   ShardedLosses<float>(targets, sums, target_logits, losses);
//   ShardGradient<float>(op, z, targets, shard, maxima, sums, loss_scale, dz, pool);
//
// T tokens, V vocabulary, R columns of this shard (0 and more). Logits are fp32 (double for storage
// double), and so is everything that is exchanged; the gradient comes out in storage T: float,
// BFloat16 or double, one rounding. Row spans of any stride and alignment, not owned. Each function
// makes l from z again: nothing is kept between them.
//
// Order of operations for a row: that of cross_entropy.h, where
//
//   m = max l over all shards             NaN takes no part; the sign of a zero shows in no loss
//                                         and no gradient
//   s = the caller's sum of the shards'   each in 64 chains and their tree; column j of the shard
//                                         is added to chain j mod 64
//   l[target] - m                         of the shard that holds the target; +0 of the others
//
// With one shard losses and gradient have the bits of CrossEntropy(). With more they differ from it
// by the order of the additions in s alone, and depend on where the vocabulary is cut. A row's bits
// depend on that row alone, not on threads. NaN and infinities do to a row what they do there.
//
// An ignored target gives +0 everywhere. A target outside [0, V), a shard that does not lie within
// V, a negative cap and shapes that do not agree fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_SHARDED_CROSS_ENTROPY_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_SHARDED_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/common/vocabulary_shard.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace headwise {

// z (in) [T, R], this shard's columns of the head's raw output, here and below. maxima (out) [T]:
// the largest l of each row, -infinity where there is none; never NaN.
template <typename T>
void ShardMaxima(const LogitTransform& op, RowSpan<const Compute<T>> z,
                 absl::Span<Compute<T>> maxima, ThreadPool& pool);

// shards (in) [n, T], the maxima of n >= 1 shards; maxima (out) [T], the largest of each column.
template <typename C>
void LargestOfShards(RowSpan<const C> shards, absl::Span<C> maxima);

// targets (in) [T], ids of the whole vocabulary or kIgnoredTarget; maxima (in) [T] of all shards.
// sums (out) [T]: the shard's part of s; target_logits (out) [T]: its part of l[target] - m.
template <typename T>
void ShardSums(const LogitTransform& op, RowSpan<const Compute<T>> z,
               absl::Span<const std::int32_t> targets, VocabularyShard shard,
               absl::Span<const Compute<T>> maxima, absl::Span<Compute<T>> sums,
               absl::Span<Compute<T>> target_logits, ThreadPool& pool);

// sums, target_logits (in) [T], added over all shards. losses (out) [T] in natural logarithms, not
// scaled; may be one of the two.
template <typename C>
void ShardedLosses(absl::Span<const std::int32_t> targets, absl::Span<const C> sums,
                   absl::Span<const C> target_logits, absl::Span<C> losses);

// maxima, sums (in) [T] of all shards. dz (out) [T, R] = loss_scale * dloss/dz; may be z itself.
template <typename T>
void ShardGradient(const LogitTransform& op, RowSpan<const Compute<T>> z,
                   absl::Span<const std::int32_t> targets, VocabularyShard shard,
                   absl::Span<const Compute<T>> maxima, absl::Span<const Compute<T>> sums,
                   double loss_scale, RowSpan<T> dz, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_SHARDED_CROSS_ENTROPY_H_
