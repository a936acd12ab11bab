// The fast CPU kernel: four heads of one token at a time, for head_dim 64 and 128 (32 times a power
// of two).
//
// S(a, b) is made of serial chains over 8 consecutive elements, so vectors run across chunks. Lane
// 4 c + h of a vector holds chunk c of head h:
//
//   v[8 b + k], lane 4 c + h = element 32 b + 8 c + k of head h     (block b, c 0-3, k 0-7)
//
// Sixteen chains then advance with one fma, the halving tree is whole-vector additions until four
// chunks are left, one double square root serves four heads, and everything else is element-wise.
// Getting there is a 4 x 4 transposition inside 128-bit lanes: of pairs of bf16 (an element of even
// index is the low half of a 32-bit word, so widening needs no shuffle), or of floats.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/common/simd.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cpu_heads.h"
#include "kernels/prepare_qkv/cpu_lanes.h"

namespace headwise::internal {

template <typename T, int kDim>
struct FourHeads {
  static_assert(kDim % 32 == 0 && ((kDim / 32) & (kDim / 32 - 1)) == 0);
  static constexpr int kBlocks = kDim / 32;
  static constexpr int kVectors = 8 * kBlocks;

  F16 v[kVectors];

  HW_ALWAYS_INLINE void MultiplyBy(F16 factor) {
    HW_UNROLL for (int i = 0; i < kVectors; ++i) { v[i] = v[i] * factor; }
  }
  HW_ALWAYS_INLINE void MultiplyBy(const FourHeads& factors) {
    HW_UNROLL for (int i = 0; i < kVectors; ++i) { v[i] = v[i] * factors.v[i]; }
  }

  // To storage and back.
  HW_ALWAYS_INLINE void Round() {
    if constexpr (std::is_same_v<T, BFloat16>) {
      HW_UNROLL for (int i = 0; i < kVectors; ++i) {
        v[i] = FromBits(RoundUpperHalf(v[i]) & I16(kUpperHalf));
      }
    }
  }

  HW_ALWAYS_INLINE static FourHeads Load(const T* const (&head)[4]) {
    FourHeads y;
    HW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const int block = 8 * b;
      if constexpr (std::is_same_v<T, BFloat16>) {
        I16 words[4];
        HW_UNROLL for (int h = 0; h < 4; ++h) { words[h] = Load64(head[h] + 32 * b); }
        TransposeQuarters(words);
        HW_UNROLL for (int j = 0; j < 4; ++j) {
          y.v[block + 2 * j] = FromBits(words[j] << 16);
          y.v[block + 2 * j + 1] = FromBits(words[j] & I16(kUpperHalf));
        }
      } else {
        F16 low[4], high[4];  // elements 0-3 and 4-7 of each chunk
        HW_UNROLL for (int h = 0; h < 4; ++h) {
          low[h] = headwise::Load(head[h] + 32 * b);
          high[h] = headwise::Load(head[h] + 32 * b + 16);
          EvenAndOddQuarters(low[h], high[h]);
        }
        TransposeQuarters(low);
        TransposeQuarters(high);
        HW_UNROLL for (int k = 0; k < 4; ++k) {
          y.v[block + k] = low[k];
          y.v[block + 4 + k] = high[k];
        }
      }
    }
    return y;
  }

  // Rounded to storage.
  HW_ALWAYS_INLINE void Store(T* const (&head)[4], bool stream) const {
    HW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const int block = 8 * b;
      if constexpr (std::is_same_v<T, BFloat16>) {
        I16 words[4];
        HW_UNROLL for (int j = 0; j < 4; ++j) {
          words[j] = ShiftRightLogical16(RoundUpperHalf(v[block + 2 * j])) |
                     (RoundUpperHalf(v[block + 2 * j + 1]) & I16(kUpperHalf));
        }
        TransposeQuarters(words);
        HW_UNROLL for (int h = 0; h < 4; ++h) { Store64(head[h] + 32 * b, words[h], stream); }
      } else {
        F16 low[4], high[4];
        HW_UNROLL for (int k = 0; k < 4; ++k) {
          low[k] = v[block + k];
          high[k] = v[block + 4 + k];
        }
        TransposeQuarters(low);
        TransposeQuarters(high);
        HW_UNROLL for (int h = 0; h < 4; ++h) {
          InterleaveQuarters(low[h], high[h]);
          Store64(head[h] + 32 * b, ToBits(low[h]), stream);
          Store64(head[h] + 32 * b + 16, ToBits(high[h]), stream);
        }
      }
    }
  }

  // S(a, b) / D of head h in every lane 4 c + h. (S * (1/D) has the same bits: D is a power of 2.)
  HW_ALWAYS_INLINE static F16 MeanProduct(const FourHeads& a, const FourHeads& b) {
    F16 p[kBlocks];
    HW_UNROLL for (int s = 0; s < kBlocks; ++s) { p[s] = F16(0.0f); }
    HW_UNROLL for (int k = 0; k < 8; ++k) {
      HW_UNROLL for (int s = 0; s < kBlocks; ++s) {
        p[s] = Fma(a.v[8 * s + k], b.v[8 * s + k], p[s]);
      }
    }
    if constexpr (kBlocks == 4) p[0] = p[0] + p[2], p[1] = p[1] + p[3];
    p[0] = p[0] + p[1];
    p[0] = p[0] + SwapHalves(p[0]);
    p[0] = p[0] + SwapNeighbours(p[0]);
    return p[0] * F16(1.0f / kDim);
  }
  static_assert(kBlocks == 2 || kBlocks == 4);
};

template <typename T, int kDim>
class FourHeadsKernel {
 public:
  using Four = FourHeads<T, kDim>;
  static constexpr int kBlocks = Four::kBlocks;

  // Whether the pairs of RoPE fall into equal lanes of two vectors.
  static bool Supports(const QkvPreparation& op) {
    if (op.layout.head_dim() != kDim) return false;
    if (op.rotary == nullptr) return op.norm != HeadNorm::kNone;
    return op.rotary->rotary_dim() % (op.rotary->pairing() == RotaryPairing::kHalf ? 64 : 32) == 0;
  }

  FourHeadsKernel(const QkvPreparation& op, HeadList list, bool stream)
      : list_(std::move(list)),
        rotary_(op.rotary),
        norm_(op.norm != HeadNorm::kNone),
        epsilon_(op.epsilon),
        round_before_weight_(op.rounding == Rounding::kBeforeWeight),
        round_(op.rounding != Rounding::kOnlyAtEnd),
        stream_(stream) {
    // The last four heads may repeat the last one: it is then computed and written more than once.
    while (list_.heads.size() % 4 != 0) list_.heads.push_back(list_.heads.back());
    if (!list_.factor.empty()) {
      factor_ = std::make_unique<Four>();
      for (int b = 0; b < kBlocks; ++b) {
        SpreadChunks(list_.factor.data() + 32 * b, factor_->v + 8 * b);
      }
    }
  }

  // One row of the rotary table, spread over lanes as the heads are. kHalf: pair 32 b + 8 c + k in
  // lanes 4 c + h of [8 b + k]. kInterleaved: pair 16 b + 4 c + j in those of [4 b + j].
  struct Turn {
    F16 cos[4 * kBlocks], sin[4 * kBlocks];
  };
  static void SetTurn(const RotaryTable& table, std::int64_t position, Turn& turn) {
    const std::int64_t half = table.rotary_dim() / 2;
    const float* cos = table.Cos(position);
    const float* sin = table.Sin(position);
    if (table.pairing() == RotaryPairing::kHalf) {
      for (std::int64_t i = 0; i < half; i += 32) {
        SpreadChunks(cos + i, turn.cos + i / 4);
        SpreadChunks(sin + i, turn.sin + i / 4);
      }
    } else {
      for (std::int64_t i = 0; i < half; i += 16) {
        SpreadQuarters(cos + i, turn.cos + i / 4);
        SpreadQuarters(sin + i, turn.sin + i / 4);
      }
    }
  }

  // One token: `packed` is its packed row, `out` its row of q or k. next_packed: to be prefetched.
  void Forward(const T* packed, const T* next_packed, const Turn& turn, T* out) const {
    const HeadList::Place* place = list_.heads.data();
    for (std::int64_t left = list_.size() / 4; left > 0; left -= kBatch, place += 4 * kBatch) {
      const int count = static_cast<int>(std::min<std::int64_t>(left, kBatch));
      Four y[kBatch];
      F16 r[kBatch];
      for (int i = 0; i < count; ++i) {
        const T* from[4];
        HW_UNROLL for (int h = 0; h < 4; ++h) {
          from[h] = packed + place[4 * i + h].packed;
          Prefetch(next_packed + place[4 * i + h].packed);
        }
        y[i] = Four::Load(from);
        if (norm_) r[i] = Four::MeanProduct(y[i], y[i]);
      }
      for (int i = 0; i < count && norm_; ++i) r[i] = ReciprocalRootOfQuarter(r[i] + F16(epsilon_));
      for (int i = 0; i < count; ++i) {
        T* to[4];
        HW_UNROLL for (int h = 0; h < 4; ++h) { to[h] = out + place[4 * i + h].separate; }
        Four z = y[i];
        if (norm_) {
          z.MultiplyBy(r[i]);
          if (round_before_weight_) z.Round();
          if (factor_ != nullptr) z.MultiplyBy(*factor_);
          if (round_) z.Round();
          if (list_.scale != 1.0f) {
            z.MultiplyBy(F16(list_.scale));
            if (round_) z.Round();
          }
        }
        if (rotary_ != nullptr) Rotate<false>(z, turn);
        z.Store(to, stream_);
      }
    }
  }

  // One token: `d` is its row of dq or dk. `sums` takes g xh, and is null without a weight.
  void Backward(const T* packed, const T* d, const T* next_packed, const T* next_d,
                const Turn& turn, T* dpacked, float* sums) const {
    const HeadList::Place* place = list_.heads.data();
    for (std::int64_t left = list_.size() / 4; left > 0; left -= kBatch, place += 4 * kBatch) {
      const int count = static_cast<int>(std::min<std::int64_t>(left, kBatch));
      Four xh[kBatch], h[kBatch];
      F16 r[kBatch], c1[kBatch];
      for (int i = 0; i < count && norm_; ++i) {
        const T* from[4];
        HW_UNROLL for (int k = 0; k < 4; ++k) {
          from[k] = packed + place[4 * i + k].packed;
          Prefetch(next_packed + place[4 * i + k].packed);
        }
        xh[i] = Four::Load(from);
        r[i] = Four::MeanProduct(xh[i], xh[i]);
      }
      for (int i = 0; i < count && norm_; ++i) r[i] = ReciprocalRootOfQuarter(r[i] + F16(epsilon_));
      for (int i = 0; i < count; ++i) {
        const T* from[4];
        HW_UNROLL for (int k = 0; k < 4; ++k) {
          from[k] = d + place[4 * i + k].separate;
          Prefetch(next_d + place[4 * i + k].separate);
        }
        Four g = Four::Load(from);
        if (rotary_ != nullptr) {
          Rotate<true>(g, turn);
          if (round_) g.Round();
        }
        if (norm_) {
          if (list_.scale != 1.0f) {
            g.MultiplyBy(F16(list_.scale));
            if (round_) g.Round();
          }
          xh[i].MultiplyBy(r[i]);
          if (sums != nullptr) {
            if (round_before_weight_) {
              Four rounded = xh[i];
              rounded.Round();
              AddProduct(g, rounded, sums);
            } else {
              AddProduct(g, xh[i], sums);
            }
            sums += 4 * kDim;
            g.MultiplyBy(*factor_);
            if (round_before_weight_) g.Round();
          }
          c1[i] = Four::MeanProduct(g, xh[i]);
        }
        h[i] = g;
      }
      for (int i = 0; i < count; ++i) {
        T* to[4];
        HW_UNROLL for (int k = 0; k < 4; ++k) { to[k] = dpacked + place[4 * i + k].packed; }
        Four dx = h[i];
        if (norm_) {
          HW_UNROLL for (int j = 0; j < Four::kVectors; ++j) {
            dx.v[j] = r[i] * Fma(-xh[i].v[j], c1[i], dx.v[j]);
          }
        }
        dx.Store(to, stream_);
      }
    }
  }

  // Floats of `sums`, which start at +0, and the sum of element d of head h among them.
  std::int64_t SumsSize() const { return list_.size() * kDim; }
  float SumAt(const float* sums, std::int64_t h, std::int64_t d) const {
    return sums[h / 4 * 4 * kDim + (d / 32 * 8 + d % 8) * kLanes + d % 32 / 8 * 4 + h % 4];
  }

 private:
  // Steps of several fours go side by side: the square root of one would otherwise wait for its
  // sum, and the rest for the square root.
  static constexpr int kBatch = 4;

  // 32 values to the lanes of every head.
  HW_ALWAYS_INLINE static void SpreadChunks(const float* from, F16* to) {
    F16 low = Quieted(Load(from)), high = Quieted(Load(from + 16));
    EvenAndOddQuarters(low, high);
    F16 l[4] = {low, low, low, low}, h[4] = {high, high, high, high};
    TransposeQuarters(l);
    TransposeQuarters(h);
    HW_UNROLL for (int k = 0; k < 4; ++k) { to[k] = l[k], to[4 + k] = h[k]; }
  }

  // 16 values: value 4 c + j to lanes 4 c + h of to[j].
  HW_ALWAYS_INLINE static void SpreadQuarters(const float* from, F16* to) {
    const F16 values = Quieted(Load(from));
    F16 v[4] = {values, values, values, values};
    TransposeQuarters(v);
    HW_UNROLL for (int j = 0; j < 4; ++j) { to[j] = v[j]; }
  }

  // Pairs (y1, y2) become (y1 c - y2 s, y2 c + y1 s), or with kBack (y1 c + y2 s, y2 c - y1 s).
  template <bool kBack>
  HW_ALWAYS_INLINE static void RotatePair(F16& first, F16& second, F16 c, F16 s) {
    const F16 y1 = first, y2 = second;
    if constexpr (kBack) {
      first = y1 * c + y2 * s;
      second = y2 * c - y1 * s;
    } else {
      first = y1 * c - y2 * s;
      second = y2 * c + y1 * s;
    }
  }

  template <bool kBack>
  HW_ALWAYS_INLINE void Rotate(Four& y, const Turn& turn) const {
    const std::int64_t rotary_dim = rotary_->rotary_dim();
    if (rotary_->pairing() == RotaryPairing::kHalf) {
      if (rotary_dim == kDim) RotateHalves<kBack, kBlocks / 2>(y, turn);
      if constexpr (kBlocks == 4) {
        if (rotary_dim == 64) RotateHalves<kBack, 1>(y, turn);
      }
      return;
    }
    HW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      if (32 * b >= rotary_dim) break;
      HW_UNROLL for (int j = 0; j < 4; ++j) {
        RotatePair<kBack>(y.v[8 * b + 2 * j], y.v[8 * b + 2 * j + 1], turn.cos[4 * b + j],
                          turn.sin[4 * b + j]);
      }
    }
  }

  // kHalf where half of the rotary dimension is kHalfBlocks blocks.
  template <bool kBack, int kHalfBlocks>
  HW_ALWAYS_INLINE static void RotateHalves(Four& y, const Turn& turn) {
    HW_UNROLL for (int i = 0; i < 8 * kHalfBlocks; ++i) {
      RotatePair<kBack>(y.v[i], y.v[i + 8 * kHalfBlocks], turn.cos[i], turn.sin[i]);
    }
  }

  HW_ALWAYS_INLINE static void Prefetch(const T* head) {
    for (int i = 0; i < kDim; i += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(head + i);
  }

  // sum = fma(g, xh, sum), in the order of the vectors.
  HW_ALWAYS_INLINE static void AddProduct(const Four& g, const Four& xh, float* sum) {
    HW_UNROLL for (int i = 0; i < Four::kVectors; ++i) {
      float* at = sum + i * kLanes;
      headwise::Store(at, Fma(g.v[i], xh.v[i], Load(at)));
    }
  }

  HeadList list_;
  const RotaryTable* rotary_;
  std::unique_ptr<Four> factor_;  // null without a weight
  bool norm_;
  float epsilon_;
  bool round_before_weight_;
  bool round_;  // intermediate values are rounded to storage
  bool stream_;
};

}  // namespace headwise::internal

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_
