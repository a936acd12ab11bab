#include "kernels/moe/grouped_linear.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "kernels/common/thread_scratch.h"

namespace headwise {
namespace {

std::int64_t CheckedExperts(absl::Span<const std::int64_t> offsets, std::int64_t rows) {
  HW_CHECK(!offsets.empty() && offsets.front() == 0 && offsets.back() == rows)
      << "offsets must run from 0 to the " << rows << " rows";
  for (std::size_t e = 1; e < offsets.size(); ++e) HW_CHECK_LE(offsets[e - 1], offsets[e]);
  return static_cast<std::int64_t>(offsets.size()) - 1;
}

// What an expert's rows are padded to, so that oneDNN soon knows every product: a new one costs
// about as much as 64 rows of bf16.
std::int64_t PaddedRows(GemmBackend backend, std::int64_t rows) {
  if (backend != GemmBackend::kOneDnn || rows == 0) return rows;
  if (rows <= 8) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const std::int64_t multiple = rows <= 64 ? 8 : 16;
  return (rows + multiple - 1) / multiple * multiple;
}

// The rows of one expert, for oneDNN: themselves, or a copy with zeros behind them in `scratch`.
template <typename T>
RowSpan<const T> Padded(RowSpan<const T> rows, std::int64_t padded, ThreadScratch& scratch) {
  if (padded == rows.rows) return rows;
  T* const copy = scratch.Take<T>(padded * rows.width);
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    std::copy_n(rows.row(r), rows.width, copy + r * rows.width);
  }
  std::fill_n(copy + rows.rows * rows.width, (padded - rows.rows) * rows.width, Narrow<T>(0));
  return RowSpan<const T>(copy, padded, rows.width);
}

// multiply(in, out) for the rows of one expert, padded for oneDNN.
template <typename TIn, typename TOut, typename Multiply>
void MultiplyRows(GemmBackend backend, RowSpan<const TIn> in, RowSpan<TOut> out,
                  Multiply multiply) {
  const std::int64_t padded = PaddedRows(backend, in.rows);
  if (padded == in.rows) return multiply(in, out);
  ThreadScratch scratch;
  const RowSpan<TOut> padded_out(scratch.Take<TOut>(padded * out.width), padded, out.width);
  multiply(Padded(in, padded, scratch), padded_out);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    std::copy_n(padded_out.row(r), out.width, out.row(r));
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
    const std::int64_t padded = PaddedRows(backend, rows);
    ThreadScratch scratch;
    LinearBackwardWeight<T>(backend, Padded(dy.Rows(first, rows), padded, scratch),
                            Padded(x.Rows(first, rows), padded, scratch), dw.Rows(e * n, n), pool);
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
