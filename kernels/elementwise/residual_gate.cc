#include "kernels/elementwise/residual_gate.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/reductions.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

template <typename T>
void CheckArguments(const ResidualGate& op, RowSpan<const T> residual, RowSpan<const T> branch,
                    absl::Span<const Compute<T>> gate) {
  HW_CHECK(op.temperature > 0) << "temperature " << op.temperature;
  HW_CHECK(op.epsilon > 0) << "epsilon " << op.epsilon;
  HW_CHECK_EQ(branch.rows, residual.rows) << "branch and residual";
  HW_CHECK_EQ(branch.width, residual.width) << "branch and residual";
  HW_CHECK_EQ(static_cast<std::int64_t>(gate.size()), residual.width) << "gate and residual";
}

// What both directions need of sixteen channels.
template <typename C>
struct Gate {
  using V = Vec16<C>;

  [[gnu::always_inline]] Gate(const ResidualGate& op, V gate)
      : sigmoid(gate / V(static_cast<C>(op.temperature))) {
    const V epsilon = static_cast<C>(op.epsilon);
    const V p = sigmoid.complement * (V(C(1)) + sigmoid.value);
    clamped = p < epsilon;
    alpha = Sqrt(Select(clamped, epsilon, p));
  }

  SigmoidPair<V> sigmoid;
  typename V::Mask clamped;
  V alpha;
};

// alpha and beta of every channel.
template <typename C>
struct Factors {
  Factors(const ResidualGate& op, absl::Span<const C> gate)
      : alpha(gate.size()), beta(gate.size()) {
    ForEachLanes(0, static_cast<std::int64_t>(gate.size()), [&](auto at) HW_ALWAYS_INLINE {
      const Gate<C> g(op, at.Load(gate.data()));
      at.Store(alpha.data(), g.alpha);
      at.Store(beta.data(), g.sigmoid.value);
    });
  }
  std::vector<C> alpha, beta;
};

}  // namespace

template <typename T>
void ResidualGateForward(const ResidualGate& op, RowSpan<const T> residual, RowSpan<const T> branch,
                         absl::Span<const Compute<T>> gate, RowSpan<T> out, ThreadPool& pool) {
  CheckArguments(op, residual, branch, gate);
  HW_CHECK_EQ(out.rows, residual.rows) << "out and residual";
  HW_CHECK_EQ(out.width, residual.width) << "out and residual";
  const std::int64_t n = residual.width;
  if (residual.rows == 0 || n == 0) return;
  const Factors<Compute<T>> factors(op, gate);
  const auto *alpha = factors.alpha.data(), *beta = factors.beta.data();
  const std::int64_t rows_of_task = std::max<std::int64_t>(1, 16384 / n);
  pool.ParallelFor((out.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * rows_of_task, out.rows);
    for (std::int64_t t = task * rows_of_task; t < end; ++t) {
      const T *const h = residual.row(t), *const x = branch.row(t);
      T* const y = out.row(t);
      ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
        at.Store(y, at.Load(alpha) * at.Load(h) + at.Load(beta) * at.Load(x));
      });
    }
  });
}

template <typename T>
void ResidualGateBackward(const ResidualGate& op, RowSpan<const T> residual,
                          RowSpan<const T> branch, absl::Span<const Compute<T>> gate,
                          RowSpan<const T> dout, RowSpan<T> dresidual, RowSpan<T> dbranch,
                          absl::Span<Compute<T>> dgate, ThreadPool& pool) {
  using C = Compute<T>;
  CheckArguments(op, residual, branch, gate);
  const auto check = [&](auto span, const char* what) {
    HW_CHECK_EQ(span.rows, residual.rows) << what;
    HW_CHECK_EQ(span.width, residual.width) << what;
  };
  check(dout, "dout and residual");
  check(dresidual, "dresidual and residual");
  check(dbranch, "dbranch and residual");
  HW_CHECK_EQ(dgate.size(), gate.size()) << "dgate and gate";
  const std::int64_t n = residual.width;
  if (n == 0) return;
  const Factors<C> factors(op, gate);
  const C *alpha = factors.alpha.data(), *beta = factors.beta.data();
  std::vector<C> sums(static_cast<std::size_t>(2 * n));  // dalpha, then dbeta
  SumOverTokens<C>(residual.rows, absl::MakeSpan(sums), pool,
                   [&](std::int64_t begin, std::int64_t end, C* dalpha) {
                     C* const dbeta = dalpha + n;
                     for (std::int64_t t = begin; t < end; ++t) {
                       const T *const h = residual.row(t), *const x = branch.row(t);
                       const T* const gradient = dout.row(t);
                       T *const dh = dresidual.row(t), *const dx = dbranch.row(t);
                       ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
                         const auto g = at.Load(gradient);
                         at.Store(dalpha, Fma(g, at.Load(h), at.Load(dalpha)));
                         at.Store(dbeta, Fma(g, at.Load(x), at.Load(dbeta)));
                         at.Store(dh, g * at.Load(alpha));
                         at.Store(dx, g * at.Load(beta));
                       });
                     }
                   });
  ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
    using V = Vec16<C>;
    const Gate<C> g(op, at.Load(gate.data()));
    const auto [s, t] = g.sigmoid;
    const V dbeta = at.Load(sums.data() + n);
    const V through_alpha = Fma(-at.Load(sums.data()), s / g.alpha, dbeta);
    const V d = Select(g.clamped, dbeta, through_alpha);
    at.Store(dgate.data(), (d * (s * t)) / V(static_cast<C>(op.temperature)));
  });
}

#define HEADWISE_INSTANTIATE(T)                                                                 \
  template void ResidualGateForward<T>(const ResidualGate&, RowSpan<const T>, RowSpan<const T>, \
                                       absl::Span<const Compute<T>>, RowSpan<T>, ThreadPool&);  \
  template void ResidualGateBackward<T>(                                                        \
      const ResidualGate&, RowSpan<const T>, RowSpan<const T>, absl::Span<const Compute<T>>,    \
      RowSpan<const T>, RowSpan<T>, RowSpan<T>, absl::Span<Compute<T>>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
