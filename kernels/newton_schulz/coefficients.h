// The polynomials of Newton-Schulz: named sets and lists of one's own.
//
//   const NewtonSchulzCoefficients mine = {.name = "mine",
//                                          .steps = {{3, -3.2f, 1.2f}, {3, -3.2f, 1.2f}},
//                                          .restarts_after = {1}};
//
// A step maps every singular value x of the block to a x + b x^3 + c x^5; a good list takes the
// values that occur, from 0 (where the block is scaled to Frobenius norm 1) to 1, close to 1.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_COEFFICIENTS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_COEFFICIENTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace headwise {

// One step: X <- a X + b (X X^T) X + c (X X^T)^2 X.
struct QuinticStep {
  float a = 0, b = 0, c = 0;
};

struct NewtonSchulzCoefficients {
  std::string name;
  std::vector<QuinticStep> steps;  // at least one
  // Ascending 1-based step numbers, each < steps.size(): X is rebuilt after them, and its Gram
  // matrix formed anew. Rounding errors of small singular values grow with the steps between.
  std::vector<int> restarts_after;
};

// Five times (3.4445, -4.7750, 2.0315), no restart: the default of Muon. It takes singular values
// from about 0.01 to 1 into 0.7 to 1.2 (Keller Jordan et al., "Muon", 2024).
const NewtonSchulzCoefficients& Quintic5();

// Eight minimax steps with a safety factor of 1.01, restarts after steps 2 and 5. It takes singular
// values from 1e-3 to 1 to within a few per cent of 1, at 1.6 times the steps (Amsel, Persson,
// Musco, Gower, "The Polar Express", arXiv:2505.16932, algorithm 1).
const NewtonSchulzCoefficients& PolarExpress8();

// kInvalidArgument names the set, and the step or restart that is wrong with it.
absl::Status CheckCoefficients(const NewtonSchulzCoefficients& coefficients);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_COEFFICIENTS_H_
