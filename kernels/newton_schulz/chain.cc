#include "kernels/newton_schulz/chain.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/newton_schulz/lower_product.h"

namespace headwise::newton_schulz {
namespace {

constexpr std::int64_t kMatrices = 5;

// Floats of a panel of a d x d matrix: its rows, to whole tiles, and a vector more, so that panels
// of a power of two of rows do not all compete for the same cache sets.
std::int64_t PanelStride(std::int64_t d) { return PanelsFor(d) * kTileFloats + kLanes; }

float AdjacentPairTree(std::vector<float> p) {
  p.resize(std::bit_ceil(p.size()), 0.0f);
  for (std::size_t n = p.size() / 2; n >= 1; n /= 2) {
    for (std::size_t i = 0; i < n; ++i) p[i] = p[2 * i] + p[2 * i + 1];
  }
  return p[0];
}

// Calls f(offset) for every vector of the matrix.
template <typename F>
void ForEachVector(const Panels& m, ForEach for_each, const F& f) {
  for_each(m.count, [&](std::int64_t p) {
    for (std::int64_t row = 0; row < m.count * kLanes; ++row) f(p * m.stride + row * kLanes);
  });
}

}  // namespace

Chain::Chain(std::int64_t d, float* scratch) : d_(d), pieces_(LowerPieces(PanelsFor(d))) {
  for (Panels* m : {&r_, &z_, &w_, &q_, &next_q_}) {
    *m = {scratch, PanelsFor(d), PanelStride(d)};
    scratch += m->count * m->stride;
  }
}

std::int64_t Chain::ScratchFloats(std::int64_t d) {
  return kMatrices * PanelsFor(d) * PanelStride(d);
}

float Chain::NormalizeTrace(ForEach for_each) {
  std::vector<float> diagonal(d_);
  for (std::int64_t i = 0; i < d_; ++i) {
    diagonal[i] = r_.panel(i / kLanes)[i * kLanes + i % kLanes];
  }
  const float t = AdjacentPairTree(std::move(diagonal));
  ForEachVector(r_, for_each,
                [&](std::int64_t at) { Store(r_.data + at, Load(r_.data + at) / F16(t)); });
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(t)));
}

template <typename Epilogue>
void Chain::Product(const Panels& a, const Panels& b, const Panels& out, ForEach for_each,
                    const Epilogue& epilogue) {
  for_each(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
    const Piece& piece = pieces_[p];
    ThreadScratch scratch;
    float* const sums = scratch.Take<float>(kPieceFloats);
    LowerProduct(a, b, 0, d_, piece, sums);
    for (std::int64_t row = piece.row_begin; row < piece.row_end; ++row) {
      for (std::int64_t col = piece.col_begin; col < piece.ColEnd(row); ++col) {
        const std::int64_t at = col * out.stride + row * kTileFloats;
        F16 tile[kLanes];
        LoadTile(sums + piece.TileIndex(row, col) * kTileFloats, tile);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) tile[i] = epilogue(tile[i], at + i * kLanes);
        StoreMirrored(tile, row, col, out);
      }
    }
  });
}

Panels Chain::Segment(absl::Span<const QuinticStep> steps, float s, ForEach for_each) {
  for (std::size_t n = 0; n < steps.size(); ++n) {
    const F16 a(steps[n].a), b(steps[n].b), c(steps[n].c);
    Product(r_, r_, z_, for_each,
            [&](F16 rr, std::int64_t at) { return Fma(c, rr, b * Load(r_.data + at)); });
    if (n == 0) {
      ForEachVector(z_, for_each,
                    [&](std::int64_t at) { Store(q_.data + at, Load(z_.data + at)); });
      for (std::int64_t i = 0; i < d_; ++i) {
        q_.panel(i / kLanes)[i * kLanes + i % kLanes] += steps[n].a;
      }
    } else {
      Product(z_, q_, next_q_, for_each,
              [&](F16 zq, std::int64_t at) { return Fma(a, Load(q_.data + at), zq); });
      std::swap(q_, next_q_);
    }
    if (n + 1 < steps.size()) {
      Product(z_, r_, w_, for_each,
              [&](F16 zr, std::int64_t at) { return Fma(a, Load(r_.data + at), zr); });
      Product(w_, z_, r_, for_each,
              [&](F16 wz, std::int64_t at) { return Fma(a, Load(w_.data + at), wz); });
    }
  }
  ForEachVector(q_, for_each,
                [&](std::int64_t at) { Store(next_q_.data + at, Load(q_.data + at) * F16(s)); });
  return next_q_;
}

}  // namespace headwise::newton_schulz
