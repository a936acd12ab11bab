// The reference, written over a policy that holds the operations whose order makes the bits.
// reference.cc instantiates it with ContractArithmetic; mutation_test with wrong ones, to show that
// the bitwise tests would notice.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_IMPL_H_
#define HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_IMPL_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// One head of values, on the stack. Of Eigen only element-wise + - *, maps and storage are used:
// its reductions and products have no fixed order.
template <typename C>
using Head = Eigen::Array<C, Eigen::Dynamic, 1, Eigen::ColMajor, kMaxHeadDim, 1>;

// docs/numerics.md, sections 2 to 5. C is float or double.
template <typename C>
struct ContractArithmetic {
  static constexpr std::int64_t kTile = kWeightGradientTile;

  // S(a, b): chunks of 8, each a serial fma chain from +0; chunks padded with +0 to a power of two;
  // p[c] + p[c + n/2] until one is left.
  static C Dot(const Head<C>& a, const Head<C>& b) {
    C p[kMaxHeadDim / 8] = {};
    for (std::int64_t d = 0; d < a.size(); ++d) p[d / 8] = std::fma(a[d], b[d], p[d / 8]);
    const std::uint64_t chunks = std::bit_ceil(static_cast<std::uint64_t>(a.size() + 7) / 8);
    for (std::uint64_t n = chunks / 2; n >= 1; n /= 2) {
      for (std::uint64_t c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
    }
    return p[0];
  }

  // For a power of two the same bits as a product with 1 / dim.
  static C Mean(C sum, std::int64_t dim) { return sum / static_cast<C>(dim); }

  static C MeanPlusEpsilon(C sum, std::int64_t dim, C epsilon) { return Mean(sum, dim) + epsilon; }

  // Correctly rounded for float: double holds more than twice its digits.
  static C ReciprocalRoot(C v) { return static_cast<C>(1.0 / std::sqrt(static_cast<double>(v))); }

  // a b + c d and a b - c d with three roundings each.
  static C SumOfProducts(C a, C b, C c, C d) { return a * b + c * d; }
  static C DifferenceOfProducts(C a, C b, C c, C d) { return a * b - c * d; }

  // p[2i] + p[2i + 1], padded with +0 to a power of two, until one is left.
  static Head<C> AdjacentPairTree(std::vector<Head<C>> p) {
    const std::int64_t dim = p[0].size();
    p.resize(std::bit_ceil(p.size()), Head<C>::Zero(dim));
    for (std::size_t n = p.size() / 2; n >= 1; n /= 2) {
      for (std::size_t i = 0; i < n; ++i) p[i] = Head<C>(p[2 * i] + p[2 * i + 1]);
    }
    return p[0];
  }
};

template <typename T, typename Arithmetic = ContractArithmetic<Compute<T>>>
class Reference {
 public:
  using C = Compute<T>;

  Reference(const QkvPreparation& op, const QkvInputs<T>& in) : op_(op), in_(in) {}

  void Forward(const QkvOutputs<T>& out) const {
    const PackedQkv& layout = op_.layout;
    for (std::int64_t t = 0; t < in_.packed.rows; ++t) {
      for (std::int64_t h = 0; h < layout.query_heads(); ++h) {
        ForwardHead(t, layout.QuerySlot(h), in_.q_weight, op_.query_scale, At(out.q, t, h));
      }
      for (std::int64_t g = 0; g < layout.kv_heads(); ++g) {
        ForwardHead(t, layout.KeySlot(g), in_.k_weight, 1.0f, At(out.k, t, g));
        if (out.v.data == nullptr) continue;
        std::copy_n(At(in_.packed, t, layout.ValueSlot(g)), dim(), At(out.v, t, g));
      }
    }
  }

  void Backward(const QkvGradients<T>& d, const PackedGradients<T>& out) const {
    const PackedQkv& layout = op_.layout;
    for (std::int64_t g = 0; g < layout.kv_heads(); ++g) {
      std::vector<Slots> q_heads;
      for (std::int64_t h = g * layout.group_size(); h < (g + 1) * layout.group_size(); ++h) {
        q_heads.push_back({layout.QuerySlot(h), h});
      }
      const Head<C> dq_weight =
          BackwardHeads(q_heads, in_.q_weight, op_.query_scale, d.dq, out.dpacked);
      const Head<C> dk_weight =
          BackwardHeads({{layout.KeySlot(g), g}}, in_.k_weight, 1.0f, d.dk, out.dpacked);
      if (HasWeight(op_.norm)) {
        std::copy_n(dq_weight.data(), dim(), out.dq_weight_per_group.row(g));
        std::copy_n(dk_weight.data(), dim(), out.dk_weight_per_group.row(g));
      }
      for (std::int64_t t = 0; t < in_.packed.rows; ++t) {
        std::copy_n(At(d.dv, t, g), dim(), At(out.dpacked, t, layout.ValueSlot(g)));
      }
    }
  }

 private:
  // Where a head lies in a packed row, and in a row of dq or dk.
  struct Slots {
    std::int64_t packed, separate;
  };

  std::int64_t dim() const { return op_.layout.head_dim(); }

  // Head `slot` of token t.
  template <typename U>
  U* At(RowSpan<U> rows, std::int64_t t, std::int64_t slot) const {
    return rows.row(t) + slot * dim();
  }

  Head<C> Load(const T* from) const {
    Head<C> head(dim());
    for (std::int64_t i = 0; i < dim(); ++i) head[i] = Widen(from[i]);
    return head;
  }

  void Store(const Head<C>& head, T* to) const {
    for (std::int64_t i = 0; i < dim(); ++i) to[i] = Narrow<T>(head[i]);
  }

  // To storage and back, unless intermediate values are kept.
  Head<C> Round(const Head<C>& head) const {
    if (op_.rounding == Rounding::kOnlyAtEnd) return head;
    return head.unaryExpr([](C y) { return Widen(Narrow<T>(y)); });
  }

  C ReciprocalRms(const Head<C>& x) const {
    return Arithmetic::ReciprocalRoot(
        Arithmetic::MeanPlusEpsilon(Arithmetic::Dot(x, x), dim(), static_cast<C>(op_.epsilon)));
  }

  // head * w', or head itself if the norm has no weight.
  Head<C> TimesWeight(const Head<C>& head, absl::Span<const C> weight) const {
    if (!HasWeight(op_.norm)) return head;
    const Eigen::Map<const Eigen::Array<C, Eigen::Dynamic, 1>> w(weight.data(), dim());
    if (op_.norm == HeadNorm::kWeighted) return head * w;
    return head * (C{1} + w);
  }

  // Elements of rotary pair i.
  struct Pair {
    std::int64_t first, second;
  };
  Pair PairAt(std::int64_t i) const {
    if (op_.rotary->pairing() == RotaryPairing::kInterleaved) return {2 * i, 2 * i + 1};
    return {i, i + op_.rotary->rotary_dim() / 2};
  }

  // (y1 c - y2 s, y2 c + y1 s); elements from R on stay.
  Head<C> Rotate(Head<C> y, std::int64_t t) const {
    if (op_.rotary == nullptr) return y;
    const float* cos = op_.rotary->Cos(in_.positions[t]);
    const float* sin = op_.rotary->Sin(in_.positions[t]);
    for (std::int64_t i = 0; i < op_.rotary->rotary_dim() / 2; ++i) {
      const auto [first, second] = PairAt(i);
      const C y1 = y[first], y2 = y[second];
      y[first] = Arithmetic::DifferenceOfProducts(y1, cos[i], y2, sin[i]);
      y[second] = Arithmetic::SumOfProducts(y2, cos[i], y1, sin[i]);
    }
    return y;
  }

  // The transpose: (d1 c + d2 s, d2 c - d1 s).
  Head<C> RotateBack(Head<C> d, std::int64_t t) const {
    if (op_.rotary == nullptr) return d;
    const float* cos = op_.rotary->Cos(in_.positions[t]);
    const float* sin = op_.rotary->Sin(in_.positions[t]);
    for (std::int64_t i = 0; i < op_.rotary->rotary_dim() / 2; ++i) {
      const auto [first, second] = PairAt(i);
      const C d1 = d[first], d2 = d[second];
      d[first] = Arithmetic::SumOfProducts(d1, cos[i], d2, sin[i]);
      d[second] = Arithmetic::DifferenceOfProducts(d2, cos[i], d1, sin[i]);
    }
    return d;
  }

  void ForwardHead(std::int64_t t, std::int64_t slot, absl::Span<const C> weight, C scale,
                   T* out) const {
    const T* packed = At(in_.packed, t, slot);
    if (op_.norm == HeadNorm::kNone && op_.rotary == nullptr) {
      std::copy_n(packed, dim(), out);
      return;
    }
    Head<C> y = Load(packed);
    if (op_.norm != HeadNorm::kNone) {
      y = y * ReciprocalRms(y);
      if (op_.rounding == Rounding::kBeforeWeight) y = Round(y);
      y = Round(TimesWeight(y, weight));
      if (scale != 1) y = Round(y * scale);
    }
    Store(Rotate(y, t), out);
  }

  // Writes the packed gradient of one head. Returns the terms of the weight's gradient, g and xh.
  std::pair<Head<C>, Head<C>> BackwardHead(std::int64_t t, Slots slots, absl::Span<const C> weight,
                                           C scale, RowSpan<const T> d, RowSpan<T> dpacked) const {
    T* out = At(dpacked, t, slots.packed);
    if (op_.norm == HeadNorm::kNone && op_.rotary == nullptr) {
      std::copy_n(At(d, t, slots.separate), dim(), out);
      return {};
    }
    Head<C> g = Round(RotateBack(Load(At(d, t, slots.separate)), t));
    if (op_.norm == HeadNorm::kNone) {
      Store(g, out);
      return {};
    }
    if (scale != 1) g = Round(g * scale);
    const Head<C> x = Load(At(in_.packed, t, slots.packed));
    const C r = ReciprocalRms(x);
    const Head<C> xh = x * r;
    const bool before = op_.rounding == Rounding::kBeforeWeight;
    const Head<C> h = before ? Round(TimesWeight(g, weight)) : TimesWeight(g, weight);
    const C c1 = Arithmetic::Mean(Arithmetic::Dot(h, xh), dim());
    Head<C> dx(dim());
    for (std::int64_t i = 0; i < dim(); ++i) dx[i] = r * std::fma(-xh[i], c1, h[i]);
    Store(dx, out);
    return {g, before ? Round(xh) : xh};
  }

  // All tokens of the heads of one kv group that share a weight. Returns its gradient, [D].
  Head<C> BackwardHeads(const std::vector<Slots>& heads, absl::Span<const C> weight, C scale,
                        RowSpan<const T> d, RowSpan<T> dpacked) const {
    const std::int64_t tokens = in_.packed.rows;
    std::vector<Head<C>> tiles(1, Head<C>::Zero(dim()));  // +0 if there is no token
    for (std::int64_t begin = 0; begin < tokens; begin += Arithmetic::kTile) {
      const std::int64_t end = std::min(tokens, begin + Arithmetic::kTile);
      std::vector<Head<C>> sums;
      for (const Slots& slots : heads) {
        Head<C> sum = Head<C>::Zero(dim());
        for (std::int64_t t = begin; t < end; ++t) {
          const auto [g, xh] = BackwardHead(t, slots, weight, scale, d, dpacked);
          if (!HasWeight(op_.norm)) continue;
          for (std::int64_t i = 0; i < dim(); ++i) sum[i] = std::fma(g[i], xh[i], sum[i]);
        }
        sums.push_back(sum);
      }
      if (begin > 0) tiles.emplace_back();
      tiles.back() = Arithmetic::AdjacentPairTree(std::move(sums));
    }
    return Arithmetic::AdjacentPairTree(std::move(tiles));
  }

  const QkvPreparation& op_;
  const QkvInputs<T>& in_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_IMPL_H_
