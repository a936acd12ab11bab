// Chain: the iteration on d x d matrices, from the Gram matrix to Q, for which O = (Q s) X.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_CHAIN_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_CHAIN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/newton_schulz/coefficients.h"
#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

class Chain {
 public:
  // `scratch` (not owned) has ScratchFloats(d) elements, 64-byte aligned.
  Chain(std::int64_t d, float* scratch);
  static std::int64_t ScratchFloats(std::int64_t d);

  // R: the Gram matrix goes here before a segment begins.
  const Panels& r() const { return r_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

  // R <- R / trace(R); returns 1 / sqrt(trace), correctly rounded.
  float NormalizeTrace(ForEach for_each);

  // The steps between two restarts: from R to Q. Returns Q s, elementwise.
  Panels Segment(absl::Span<const QuinticStep> steps, float s, ForEach for_each);

 private:
  // out = epilogue(A B), whose lower triangle is computed and mirrored. epilogue(product, at) gets
  // a vector of the product and where its element of another matrix is. out may be an operand of
  // the epilogue, but not A or B.
  template <typename Epilogue>
  void Product(const Panels& a, const Panels& b, const Panels& out, ForEach for_each,
               const Epilogue& epilogue);

  std::int64_t d_;
  std::vector<Piece> pieces_;
  Panels r_, z_, w_, q_, next_q_;
};

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_CHAIN_H_
