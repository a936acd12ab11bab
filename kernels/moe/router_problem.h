// What the tests of router and balancing share: logits on which a router runs, and the plain softmax
// of one row, in the order of softmax_row.h.
#ifndef HEADWISE_KERNELS_MOE_ROUTER_PROBLEM_H_
#define HEADWISE_KERNELS_MOE_ROUTER_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/moe/router.h"

namespace headwise {

template <typename C>
std::vector<C> Softmax(const std::vector<C>& z) {
  C max = -std::numeric_limits<C>::infinity();
  for (const C x : z) max = x > max ? x : max;
  std::vector<C> p;
  C chain[64] = {};
  for (std::size_t e = 0; e < z.size(); ++e) {
    p.push_back(Exp(z[e] - max));
    chain[e % 64] += p[e];
  }
  for (int n = 32; n >= 1; n /= 2) {
    for (int i = 0; i < n; ++i) chain[i] = chain[i] + chain[i + n];
  }
  for (C& x : p) x = x / chain[0];
  return p;
}

template <typename C>
std::vector<C> RowOf(const TestMatrix<C>& m, std::int64_t row) {
  return {m.view().row(row), m.view().row(row) + m.width()};
}

template <typename C>
struct Problem {
  Problem(const Router& op, std::int64_t tokens, std::int64_t num_experts, bool biased,
          Layout layout = Layout::kContiguous)
      : op(op),
        z(tokens, num_experts, layout),
        dweights(tokens, op.chosen, layout),
        weights(dweights),
        dz(z),
        bias(1, biased ? num_experts : 0),
        experts(tokens * op.chosen, -1) {
    Fill(z, 1, 3.0);
    Fill(dweights, 2);
    Fill(bias, 3, 0.5);
  }
  RowSpan<std::int32_t> Experts() {
    return RowSpan<std::int32_t>(experts.data(), z.rows(), op.chosen);
  }
  void Forward(ThreadPool& pool) {
    RouterForward<C>(op, z.view(), absl::MakeConstSpan(bias.view().data, bias.width()), Experts(),
                     weights.span(), pool);
  }
  void Backward(ThreadPool& pool) {
    RouterBackward<C>(op, z.view(), Experts(), dweights.view(), dz.span(), pool);
  }

  Router op;
  TestMatrix<C> z, dweights, weights, dz, bias;
  std::vector<std::int32_t> experts;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_ROUTER_PROBLEM_H_
