// A feed-forward layer of this program's own, written down for Headwise's layout checker: a gated MLP
// whose gate has one number for each block of the hidden width, which no rule of Headwise knows.
//
//   hidden [t, f b] = (x W1^T) sigmoid(x Wg^T)[t, f]      W1 [F B, N], Wg [F, N]
//   y = hidden W2^T                                        W2 [N, F B]
#ifndef EXAMPLE_SHARDED_FFN_H_
#define EXAMPLE_SHARDED_FFN_H_

#include <cstdint>

#include "core/parallel/layout_checker.h"

namespace example {

struct ShardedFfn {
  std::int64_t tokens, width, blocks, block_size;

  // One forward and one backward pass over layouts. Inputs "x" and "dy", parameters "w1", "gate" and
  // "w2", boundaries "in" and "out".
  void Check(headwise::LayoutChecker& check) const;
};

// Tensor parallel over the blocks, the residual stream repeated on every rank.
headwise::LayoutPlan TensorParallelFfn();

}  // namespace example

#endif  // EXAMPLE_SHARDED_FFN_H_
