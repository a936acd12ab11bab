#include "kernels/moe/grouped_linear.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/base/check.h"

namespace headwise {
namespace {

std::int64_t CheckedExperts(absl::Span<const std::int64_t> offsets, std::int64_t rows) {
  HW_CHECK(!offsets.empty() && offsets.front() == 0 && offsets.back() == rows)
      << "offsets must run from 0 to the " << rows << " rows";
  for (std::size_t e = 1; e < offsets.size(); ++e) HW_CHECK_LE(offsets[e - 1], offsets[e]);
  return static_cast<std::int64_t>(offsets.size()) - 1;
}

std::int64_t PaddedRows(std::int64_t rows) {
  if (rows <= 8) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const std::int64_t multiple = rows <= 64 ? 8 : 32;
  return (rows + multiple - 1) / multiple * multiple;
}

// The rows of one expert, for oneDNN: themselves, or a copy with zeros behind them.
template <typename T>
class PaddedInput {
 public:
  PaddedInput(RowSpan<const T> rows, std::int64_t padded) : span_(rows) {
    if (padded == rows.rows) return;
    copy_.resize(padded * rows.width, Narrow<T>(0));
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      std::memcpy(copy_.data() + r * rows.width, rows.row(r), rows.width * sizeof(T));
    }
    span_ = RowSpan<const T>(copy_.data(), padded, rows.width);
  }
  RowSpan<const T> span() const { return span_; }

 private:
  std::vector<T> copy_;
  RowSpan<const T> span_;
};

// multiply(in, out) for the rows of one expert, padded for oneDNN.
template <typename TIn, typename TOut, typename Multiply>
void MultiplyRows(GemmBackend backend, RowSpan<const TIn> in, RowSpan<TOut> out,
                  Multiply multiply) {
  const std::int64_t padded = backend == GemmBackend::kOneDnn ? PaddedRows(in.rows) : in.rows;
  if (padded == in.rows) return multiply(in, out);
  const PaddedInput<TIn> padded_in(in, padded);
  std::vector<TOut> memory(padded * out.width);
  multiply(padded_in.span(), RowSpan<TOut>(memory.data(), padded, out.width));
  for (std::int64_t r = 0; r < out.rows; ++r) {
    std::memcpy(out.row(r), memory.data() + r * out.width, out.width * sizeof(TOut));
  }
}

// expert(e, first_row, rows) for every expert that has rows.
template <typename F>
void ForEachExpert(absl::Span<const std::int64_t> offsets, F expert) {
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    const std::int64_t rows = offsets[e + 1] - offsets[e];
    if (rows > 0) expert(static_cast<std::int64_t>(e), offsets[e], rows);
  }
}

}  // namespace

template <typename TIn, typename TOut>
void GroupedLinearForward(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                          RowSpan<const TIn> x, RowSpan<const TIn> w,
                          RowSpan<const Compute<TIn>> bias, RowSpan<TOut> y, ThreadPool& pool) {
  const std::int64_t experts = CheckedExperts(offsets, x.rows), n = y.width;
  HW_CHECK_EQ(x.rows, y.rows) << "rows of x and y";
  HW_CHECK_EQ(w.rows, experts * n) << "rows of w: experts times out_features";
  if (bias.data != nullptr) {
    HW_CHECK(bias.rows == experts && bias.width == n)
        << "bias is " << bias.rows << " x " << bias.width << ", must be " << experts << " x " << n;
  }
  ForEachExpert(offsets, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    absl::Span<const Compute<TIn>> bias_of_e;
    if (bias.data != nullptr) bias_of_e = absl::MakeConstSpan(bias.row(e), n);
    MultiplyRows<TIn, TOut>(backend, x.Rows(first, rows), y.Rows(first, rows),
                            [&](RowSpan<const TIn> in, RowSpan<TOut> out) {
                              LinearForward<TIn, TOut>(backend, in, w.Rows(e * n, n), bias_of_e,
                                                       out, pool);
                            });
  });
}

template <typename TIn, typename TOut>
void GroupedLinearBackwardInput(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                                RowSpan<const TIn> dy, RowSpan<const TIn> w, RowSpan<TOut> dx,
                                ThreadPool& pool) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows), n = dy.width;
  HW_CHECK_EQ(dy.rows, dx.rows) << "rows of dy and dx";
  HW_CHECK_EQ(w.rows, experts * n) << "rows of w: experts times out_features";
  ForEachExpert(offsets, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    MultiplyRows<TIn, TOut>(backend, dy.Rows(first, rows), dx.Rows(first, rows),
                            [&](RowSpan<const TIn> in, RowSpan<TOut> out) {
                              LinearBackwardInput<TIn, TOut>(backend, in, w.Rows(e * n, n), out,
                                                             pool);
                            });
  });
}

template <typename T>
void GroupedLinearBackwardWeight(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                                 RowSpan<const T> dy, RowSpan<const T> x, RowSpan<Compute<T>> dw,
                                 ThreadPool& pool) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows), n = dy.width;
  HW_CHECK_EQ(dy.rows, x.rows) << "rows of dy and x";
  HW_CHECK_EQ(dw.rows, experts * n) << "rows of dw: experts times out_features";
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t first = offsets[e], rows = offsets[e + 1] - first;
    const std::int64_t padded =
        backend == GemmBackend::kOneDnn && rows > 0 ? PaddedRows(rows) : rows;
    const PaddedInput<T> dy_of_e(dy.Rows(first, rows), padded);
    const PaddedInput<T> x_of_e(x.Rows(first, rows), padded);
    LinearBackwardWeight<T>(backend, dy_of_e.span(), x_of_e.span(), dw.Rows(e * n, n), pool);
  }
}

template <typename T>
void GroupedLinearBackwardBias(absl::Span<const std::int64_t> offsets, RowSpan<const T> dy,
                               RowSpan<Compute<T>> dbias, ThreadPool& pool) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows);
  HW_CHECK(dbias.rows == experts && dbias.width == dy.width)
      << "dbias is " << dbias.rows << " x " << dbias.width << ", must be " << experts << " x "
      << dy.width;
  for (std::int64_t e = 0; e < experts; ++e) {
    LinearBackwardBias<T>(dy.Rows(offsets[e], offsets[e + 1] - offsets[e]),
                          absl::MakeSpan(dbias.row(e), dy.width), pool);
  }
}

#define HEADWISE_INSTANTIATE(TIn, TOut)                                                            \
  template void GroupedLinearForward<TIn, TOut>(                                                   \
      GemmBackend, absl::Span<const std::int64_t>, RowSpan<const TIn>, RowSpan<const TIn>,         \
      RowSpan<const Compute<TIn>>, RowSpan<TOut>, ThreadPool&);                                    \
  template void GroupedLinearBackwardInput<TIn, TOut>(GemmBackend, absl::Span<const std::int64_t>, \
                                                      RowSpan<const TIn>, RowSpan<const TIn>,      \
                                                      RowSpan<TOut>, ThreadPool&);
HEADWISE_INSTANTIATE(float, float)
HEADWISE_INSTANTIATE(BFloat16, BFloat16)
HEADWISE_INSTANTIATE(BFloat16, float)
HEADWISE_INSTANTIATE(double, double)
#undef HEADWISE_INSTANTIATE

#define HEADWISE_INSTANTIATE(T)                                                                \
  template void GroupedLinearBackwardWeight<T>(GemmBackend, absl::Span<const std::int64_t>,    \
                                               RowSpan<const T>, RowSpan<const T>,             \
                                               RowSpan<Compute<T>>, ThreadPool&);              \
  template void GroupedLinearBackwardBias<T>(absl::Span<const std::int64_t>, RowSpan<const T>, \
                                             RowSpan<Compute<T>>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
