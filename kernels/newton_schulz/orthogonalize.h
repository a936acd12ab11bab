// Orthogonalize: the fast path of Newton-Schulz, apart from where the blocks come from and go to.
//
// Newton-Schulz itself reads and writes matrices; the Muon step reads gradients and momentum, makes
// the block as it reads it, and writes weights. Both hand their blocks over as BlockAccess.
//
// Blocks of moderate cost are worked on one per thread at a time; a larger block is cut into fixed
// pieces for all threads. Scratch is one block per thread, or one large block: never all of them.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_ORTHOGONALIZE_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_ORTHOGONALIZE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/coefficients.h"

namespace headwise::newton_schulz {

// One block, as a matrix of its own of rows() x cols().
//
// Every element is loaded exactly once; when the whole block has been loaded, every element is
// stored exactly once. Different elements may be loaded, or stored, by several threads at once.
class BlockAccess {
 public:
  virtual ~BlockAccess() = default;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  // Whether the block is the transpose of what is to be orthogonalised. Only decides which way a
  // square block is worked on.
  virtual bool transposed_storage() const { return false; }
  // x[i] = element (row, col + i), 0 <= i < count.
  virtual void Load(std::int64_t row, std::int64_t col, std::int64_t count, float* x) = 0;
  // Element (row, col + i) of the result is o[i].
  virtual void Store(std::int64_t row, std::int64_t col, std::int64_t count, const float* o) = 0;
};

// Orthogonalises every block. `coefficients` are valid (CheckCoefficients), blocks are not empty.
void Orthogonalize(const NewtonSchulzCoefficients& coefficients,
                   absl::Span<BlockAccess* const> blocks, ThreadPool& pool);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_ORTHOGONALIZE_H_
