#include "kernels/moe/grouping.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

void CheckShape(const char* what, std::int64_t rows, std::int64_t width, std::int64_t want_rows,
                std::int64_t want_width) {
  HW_CHECK(rows == want_rows && width == want_width)
      << what << " is " << rows << " x " << width << ", must be " << want_rows << " x "
      << want_width;
}

// work(t) for every token; a task has tokens of some 16384 elements.
template <typename Work>
void ForEachToken(const ExpertGroups& groups, std::int64_t width, ThreadPool& pool, Work work) {
  const std::int64_t elements = std::max<std::int64_t>(width * groups.chosen, 1);
  const std::int64_t tokens = std::max<std::int64_t>(1, 16384 / elements);
  pool.ParallelFor((groups.tokens + tokens - 1) / tokens, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * tokens, groups.tokens);
    for (std::int64_t t = task * tokens; t < end; ++t) work(t);
  });
}

}  // namespace

ExpertGroups GroupByExpert(RowSpan<const std::int32_t> experts, std::int64_t num_experts) {
  HW_CHECK_GE(num_experts, 1);
  ExpertGroups groups;
  groups.tokens = experts.rows;
  groups.chosen = experts.width;
  groups.offsets.assign(num_experts + 1, 0);
  for (std::int64_t t = 0; t < experts.rows; ++t) {
    for (std::int64_t j = 0; j < experts.width; ++j) {
      const std::int32_t expert = experts.row(t)[j];
      HW_CHECK(expert >= 0 && expert < num_experts)
          << "expert " << expert << " of token " << t << ", of " << num_experts << " experts";
      ++groups.offsets[expert + 1];
    }
  }
  for (std::int64_t e = 0; e < num_experts; ++e) groups.offsets[e + 1] += groups.offsets[e];
  // A counting sort: stable.
  std::vector<std::int64_t> next(groups.offsets.begin(), groups.offsets.end() - 1);
  groups.row_of.reserve(groups.rows());
  for (std::int64_t t = 0; t < experts.rows; ++t) {
    for (std::int64_t j = 0; j < experts.width; ++j) {
      groups.row_of.push_back(next[experts.row(t)[j]]++);
    }
  }
  return groups;
}

template <typename T>
void DispatchForward(const ExpertGroups& groups, RowSpan<const T> x, RowSpan<T> rows,
                     ThreadPool& pool) {
  CheckShape("x", x.rows, x.width, groups.tokens, x.width);
  CheckShape("rows", rows.rows, rows.width, groups.rows(), x.width);
  if (x.width == 0) return;
  ForEachToken(groups, x.width, pool, [&](std::int64_t t) {
    for (std::int64_t j = 0; j < groups.chosen; ++j) {
      std::memcpy(rows.row(groups.row_of[t * groups.chosen + j]), x.row(t), x.width * sizeof(T));
    }
  });
}

template <typename T>
void DispatchBackward(const ExpertGroups& groups, RowSpan<const T> drows, RowSpan<T> dx,
                      ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  CheckShape("drows", drows.rows, drows.width, groups.rows(), dx.width);
  CheckShape("dx", dx.rows, dx.width, groups.tokens, dx.width);
  ForEachToken(groups, dx.width, pool, [&](std::int64_t t) {
    const std::int64_t* const row = groups.row_of.data() + t * groups.chosen;
    T* const out = dx.row(t);
    ForEachLanes(0, dx.width, [&](auto at) HW_ALWAYS_INLINE {
      V sum = Compute<T>{0};
      for (std::int64_t j = 0; j < groups.chosen; ++j) sum = sum + at.Load(drows.row(row[j]));
      at.Store(out, sum);
    });
  });
}

template <typename T>
void CombineForward(const ExpertGroups& groups, RowSpan<const Compute<T>> weights,
                    RowSpan<const T> outputs, RowSpan<T> y, ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  CheckShape("weights", weights.rows, weights.width, groups.tokens, groups.chosen);
  CheckShape("outputs", outputs.rows, outputs.width, groups.rows(), y.width);
  CheckShape("y", y.rows, y.width, groups.tokens, y.width);
  ForEachToken(groups, y.width, pool, [&](std::int64_t t) {
    const std::int64_t* const row = groups.row_of.data() + t * groups.chosen;
    const Compute<T>* const w = weights.row(t);
    T* const out = y.row(t);
    ForEachLanes(0, y.width, [&](auto at) HW_ALWAYS_INLINE {
      V sum = Compute<T>{0};
      for (std::int64_t j = 0; j < groups.chosen; ++j) {
        sum = Fma(V(w[j]), at.Load(outputs.row(row[j])), sum);
      }
      at.Store(out, sum);
    });
  });
}

template <typename T>
void CombineBackward(const ExpertGroups& groups, RowSpan<const Compute<T>> weights,
                     RowSpan<const T> outputs, RowSpan<const T> dy, RowSpan<T> doutputs,
                     RowSpan<Compute<T>> dweights, ThreadPool& pool) {
  using C = Compute<T>;
  using V = Vec16<C>;
  CheckShape("weights", weights.rows, weights.width, groups.tokens, groups.chosen);
  CheckShape("outputs", outputs.rows, outputs.width, groups.rows(), dy.width);
  CheckShape("dy", dy.rows, dy.width, groups.tokens, dy.width);
  CheckShape("doutputs", doutputs.rows, doutputs.width, groups.rows(), dy.width);
  CheckShape("dweights", dweights.rows, dweights.width, groups.tokens, groups.chosen);
  ForEachToken(groups, dy.width, pool, [&](std::int64_t t) {
    const T* const d = dy.row(t);
    for (std::int64_t j = 0; j < groups.chosen; ++j) {
      const std::int64_t row = groups.row_of[t * groups.chosen + j];
      const T* const output = outputs.row(row);
      T* const doutput = doutputs.row(row);
      const V weight = weights.row(t)[j];
      dweights.row(t)[j] = ReduceRow<C>(dy.width, [&](V chain, auto at) HW_ALWAYS_INLINE {
        const V gradient = at.Load(d);
        at.Store(doutput, weight * gradient);
        return Fma(gradient, at.Load(output), chain);
      });
    }
  });
}

#define HEADWISE_INSTANTIATE(T)                                                        \
  template void DispatchForward<T>(const ExpertGroups&, RowSpan<const T>, RowSpan<T>,  \
                                   ThreadPool&);                                       \
  template void DispatchBackward<T>(const ExpertGroups&, RowSpan<const T>, RowSpan<T>, \
                                    ThreadPool&);                                      \
  template void CombineForward<T>(const ExpertGroups&, RowSpan<const Compute<T>>,      \
                                  RowSpan<const T>, RowSpan<T>, ThreadPool&);          \
  template void CombineBackward<T>(const ExpertGroups&, RowSpan<const Compute<T>>,     \
                                   RowSpan<const T>, RowSpan<const T>, RowSpan<T>,     \
                                   RowSpan<Compute<T>>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
