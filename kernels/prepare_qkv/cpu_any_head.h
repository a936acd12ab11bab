// The CPU kernel for any even head_dim: one head at a time, plain loops that the compiler
// vectorises over elements. The serial chains of S run side by side in the processor's pipeline.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_ANY_HEAD_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_ANY_HEAD_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cpu_heads.h"

namespace headwise::internal {

template <typename T>
class AnyHeadKernel {
 public:
  AnyHeadKernel(const QkvPreparation& op, HeadList list, bool /*stream*/)
      : list_(std::move(list)),
        dim_(op.layout.head_dim()),
        rotary_(op.rotary),
        norm_(op.norm != HeadNorm::kNone),
        epsilon_(op.epsilon),
        round_before_weight_(op.rounding == Rounding::kBeforeWeight),
        round_(op.rounding != Rounding::kOnlyAtEnd) {}

  // The row of the rotary table that a token uses.
  struct Turn {
    const float* cos;
    const float* sin;
  };
  static void SetTurn(const RotaryTable& table, std::int64_t position, Turn& turn) {
    turn = {table.Cos(position), table.Sin(position)};
  }

  // One token: `packed` is its packed row, `out` its row of q or k.
  void Forward(const T* packed, const T* /*next_packed*/, const Turn& turn, T* out) const {
    for (const HeadList::Place& place : list_.heads) {
      ForwardHead(packed + place.packed, turn, out + place.separate);
    }
  }

  // One token. sums [list.size(), D] takes g xh; null without a weight.
  void Backward(const T* packed, const T* d, const T* /*next_packed*/, const T* /*next_d*/,
                const Turn& turn, T* dpacked, float* sums) const {
    for (std::int64_t h = 0; h < list_.size(); ++h) {
      const HeadList::Place& place = list_.heads[h];
      BackwardHead(packed + place.packed, d + place.separate, turn, dpacked + place.packed,
                   sums == nullptr ? nullptr : sums + h * dim_);
    }
  }

  // Floats of `sums`, which start at +0.
  std::int64_t SumsSize() const { return list_.size() * dim_; }
  // sums[h][d].
  float SumAt(const float* sums, std::int64_t h, std::int64_t d) const {
    return sums[h * dim_ + d];
  }

 private:
  using Buffer = float[kMaxHeadDim];

  static float Round(float y) { return Widen(Narrow<T>(y)); }

  void Load(const T* from, float* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) to[i] = Widen(from[i]);
  }
  void Store(const float* from, T* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) to[i] = Narrow<T>(from[i]);
  }
  void RoundAll(float* y) const {
    for (std::int64_t i = 0; i < dim_; ++i) y[i] = Round(y[i]);
  }

  // S(a, b) / D.
  float MeanProduct(const float* a, const float* b) const {
    float p[kMaxHeadDim / 8];
    std::int64_t n = 0;
    for (std::int64_t i = 0; i + 8 <= dim_; i += 8, ++n) {
      float chain = 0.0f;
      for (int k = 0; k < 8; ++k) chain = std::fma(a[i + k], b[i + k], chain);
      p[n] = chain;
    }
    if (dim_ % 8 != 0) {
      float chain = 0.0f;
      for (std::int64_t i = dim_ / 8 * 8; i < dim_; ++i) chain = std::fma(a[i], b[i], chain);
      p[n++] = chain;
    }
    for (; (n & (n - 1)) != 0; ++n) p[n] = 0.0f;
    for (n /= 2; n >= 1; n /= 2) {
      for (std::int64_t c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
    }
    return p[0] / static_cast<float>(dim_);
  }

  float ReciprocalRms(const float* x) const {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(MeanProduct(x, x) + epsilon_)));
  }

  // Pairs (y1, y2) become (y1 c - y2 s, y2 c + y1 s).
  void Rotate(float* y, const Turn& turn) const {
    const std::int64_t half = rotary_->rotary_dim() / 2;
    const bool interleaved = rotary_->pairing() == RotaryPairing::kInterleaved;
    for (std::int64_t i = 0; i < half && interleaved; ++i) {
      const float y1 = y[2 * i], y2 = y[2 * i + 1];
      y[2 * i] = y1 * turn.cos[i] - y2 * turn.sin[i];
      y[2 * i + 1] = y2 * turn.cos[i] + y1 * turn.sin[i];
    }
    for (std::int64_t i = 0; i < half && !interleaved; ++i) {
      const float y1 = y[i], y2 = y[half + i];
      y[i] = y1 * turn.cos[i] - y2 * turn.sin[i];
      y[half + i] = y2 * turn.cos[i] + y1 * turn.sin[i];
    }
  }

  // Pairs (d1, d2) become (d1 c + d2 s, d2 c - d1 s).
  void RotateBack(float* d, const Turn& turn) const {
    const std::int64_t half = rotary_->rotary_dim() / 2;
    const bool interleaved = rotary_->pairing() == RotaryPairing::kInterleaved;
    for (std::int64_t i = 0; i < half && interleaved; ++i) {
      const float d1 = d[2 * i], d2 = d[2 * i + 1];
      d[2 * i] = d1 * turn.cos[i] + d2 * turn.sin[i];
      d[2 * i + 1] = d2 * turn.cos[i] - d1 * turn.sin[i];
    }
    for (std::int64_t i = 0; i < half && !interleaved; ++i) {
      const float d1 = d[i], d2 = d[half + i];
      d[i] = d1 * turn.cos[i] + d2 * turn.sin[i];
      d[half + i] = d2 * turn.cos[i] - d1 * turn.sin[i];
    }
  }

  void ForwardHead(const T* packed, const Turn& turn, T* out) const {
    if (!norm_ && rotary_ == nullptr) {
      std::memcpy(out, packed, dim_ * sizeof(T));
      return;
    }
    alignas(64) Buffer y;
    Load(packed, y);
    if (norm_) {
      const float r = ReciprocalRms(y);
      for (std::int64_t i = 0; i < dim_; ++i) y[i] = y[i] * r;
      if (round_before_weight_) RoundAll(y);
      if (!list_.factor.empty()) {
        for (std::int64_t i = 0; i < dim_; ++i) y[i] = y[i] * list_.factor[i];
      }
      if (round_) RoundAll(y);
      if (list_.scale != 1.0f) {
        for (std::int64_t i = 0; i < dim_; ++i) y[i] = y[i] * list_.scale;
        if (round_) RoundAll(y);
      }
    }
    if (rotary_ != nullptr) Rotate(y, turn);
    Store(y, out);
  }

  void BackwardHead(const T* packed, const T* d, const Turn& turn, T* dpacked, float* sums) const {
    if (!norm_ && rotary_ == nullptr) {
      std::memcpy(dpacked, d, dim_ * sizeof(T));
      return;
    }
    alignas(64) Buffer g, xh, h;
    Load(d, g);
    if (rotary_ != nullptr) {
      RotateBack(g, turn);
      if (round_) RoundAll(g);
    }
    if (!norm_) {
      Store(g, dpacked);
      return;
    }
    if (list_.scale != 1.0f) {
      for (std::int64_t i = 0; i < dim_; ++i) g[i] = g[i] * list_.scale;
      if (round_) RoundAll(g);
    }
    Load(packed, xh);
    const float r = ReciprocalRms(xh);
    for (std::int64_t i = 0; i < dim_; ++i) xh[i] = xh[i] * r;
    if (sums != nullptr) {
      if (round_before_weight_) {
        for (std::int64_t i = 0; i < dim_; ++i) sums[i] = std::fma(g[i], Round(xh[i]), sums[i]);
      } else {
        for (std::int64_t i = 0; i < dim_; ++i) sums[i] = std::fma(g[i], xh[i], sums[i]);
      }
      for (std::int64_t i = 0; i < dim_; ++i) h[i] = g[i] * list_.factor[i];
      if (round_before_weight_) RoundAll(h);
    } else {
      std::memcpy(h, g, dim_ * sizeof(float));
    }
    const float c1 = MeanProduct(h, xh);
    for (std::int64_t i = 0; i < dim_; ++i) {
      dpacked[i] = Narrow<T>(r * std::fma(-xh[i], c1, h[i]));
    }
  }

  HeadList list_;
  std::int64_t dim_;
  const RotaryTable* rotary_;
  bool norm_;
  float epsilon_;
  bool round_before_weight_;
  bool round_;  // intermediate values are rounded to storage
};

}  // namespace headwise::internal

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_ANY_HEAD_H_
