// balancing: the biases that keep a router's experts evenly used without a term in the loss
// (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
//
//   bias[e] <- bias[e] + rate * sign(mean of loads - load[e])
//
// A bias is added to its expert's score where experts are chosen, never to a weight, so the loss
// has no gradient for it: Parameter::gradient of ParameterRole::kBalancingBias holds the loads
// instead, how many (token, choice) pairs of the step chose the expert. Loads add up over
// micro-batches and ranks as gradients do.
//
//   MoveBalancingBias(0.001, loads, bias);   // both [E]
#ifndef HEADWISE_OPTIM_BALANCING_H_
#define HEADWISE_OPTIM_BALANCING_H_

#include "absl/types/span.h"

namespace headwise {

// The comparison load * E < sum of loads is made in double, exact up to 2^53 / E choices; the bias
// is rounded once.
void MoveBalancingBias(double rate, absl::Span<const float> loads, absl::Span<float> bias);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_BALANCING_H_
