// The fast CPU kernel: four heads of one token at a time, for head_dim a multiple of 32 whose
// quotient is a power of two.
//
// S(a, b) is made of serial chains over 8 consecutive elements, so vectors must run across chunks.
// Lane 4 c + h of a vector holds chunk c of head h:
//
//   v[s][k], lane 4 c + h = element 32 s + 8 c + k of head h      (s block of 32, c 0-3, k 0-7)
//
// Sixteen chains then advance with one fma, the halving tree is whole-vector additions until four
// chunks are left, one double square root serves four heads, and everything else is element-wise.
// Getting there is a 4 x 4 transposition inside 128-bit lanes: of pairs of bf16 (an element of even
// index is the low half of a 32-bit word, so widening needs no shuffle), or of floats.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/common/simd.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cpu_heads.h"

namespace headwise::internal {

#define HW_INLINE [[gnu::always_inline]] inline

// --- Sixteen lanes as four quarters of four ------------------------------------------------------

// Within each register: lane i of the result is lane kFrom(i) of a followed by b.
template <auto kFrom, typename Lane>
HW_INLINE Vec16<Lane> ShuffleRegisters(Vec16<Lane> a, Vec16<Lane> b) {
  using Part = typename Vec16<Lane>::Part;
  return Vec16<Lane>::Map(
      [](Part x, Part y) {
        return [&]<int... i>(std::integer_sequence<int, i...>) {
          return Part(__builtin_shufflevector(x, y, kFrom(i)...));
        }
        (std::make_integer_sequence<int, Vec16<Lane>::kPartLanes>{});
      },
      a, b);
}

// In every quarter: (v[0], v[1], v[2], v[3]) becomes its transpose. Its own inverse.
template <typename Lane>
HW_INLINE void TransposeQuarters(Vec16<Lane> (&v)[4]) {
  constexpr int n = Vec16<Lane>::kPartLanes;
  // (a0 b0 a1 b1), (a2 b2 a3 b3)
  constexpr auto low = [](int i) { return i / 4 * 4 + i % 4 / 2 + i % 2 * n; };
  constexpr auto high = [](int i) { return i / 4 * 4 + 2 + i % 4 / 2 + i % 2 * n; };
  // (a0 a1 b0 b1), (a2 a3 b2 b3)
  constexpr auto low_pair = [](int i) { return i / 4 * 4 + i % 2 + i % 4 / 2 * n; };
  constexpr auto high_pair = [](int i) { return i / 4 * 4 + 2 + i % 2 + i % 4 / 2 * n; };
  const Vec16<Lane> ab_low = ShuffleRegisters<low>(v[0], v[1]);
  const Vec16<Lane> ab_high = ShuffleRegisters<high>(v[0], v[1]);
  const Vec16<Lane> cd_low = ShuffleRegisters<low>(v[2], v[3]);
  const Vec16<Lane> cd_high = ShuffleRegisters<high>(v[2], v[3]);
  v[0] = ShuffleRegisters<low_pair>(ab_low, cd_low);
  v[1] = ShuffleRegisters<high_pair>(ab_low, cd_low);
  v[2] = ShuffleRegisters<low_pair>(ab_high, cd_high);
  v[3] = ShuffleRegisters<high_pair>(ab_high, cd_high);
}

// Quarters (0 1 2 3) become (2 3 0 1).
HW_INLINE F16 SwapHalves(F16 v) {
  if constexpr (F16::kParts == 2) {
    std::swap(v.part[0], v.part[1]);
    return v;
  } else {
    constexpr auto from = [](int i) { return i ^ 8; };
    return ShuffleRegisters<from>(v, v);
  }
}

// Quarters (0 1 2 3) become (1 0 3 2).
HW_INLINE F16 SwapNeighbours(F16 v) {
  constexpr auto from = [](int i) { return i ^ 4; };
  return ShuffleRegisters<from>(v, v);
}

// Eight quarters in order, (a b): the even ones to a, the odd ones to b.
HW_INLINE void EvenAndOddQuarters(F16& a, F16& b) {
  constexpr int n = F16::kPartLanes;
  constexpr auto even = [](int i) { return i / 4 * 8 % n + i % 4 + i / (n / 2) * n; };
  constexpr auto odd = [](int i) { return i / 4 * 8 % n + 4 + i % 4 + i / (n / 2) * n; };
  if constexpr (F16::kParts == 2) {
    F16 x, y;  // x: the first registers of the two halves of each result
    x.part[0] = a.part[0], x.part[1] = b.part[0];
    y.part[0] = a.part[1], y.part[1] = b.part[1];
    a = ShuffleRegisters<even>(x, y);
    b = ShuffleRegisters<odd>(x, y);
  } else {
    const F16 x = a, y = b;
    a = ShuffleRegisters<even>(x, y);
    b = ShuffleRegisters<odd>(x, y);
  }
}

// The inverse.
HW_INLINE void InterleaveQuarters(F16& a, F16& b) {
  constexpr int n = F16::kPartLanes;
  constexpr auto low = [](int i) { return i / 8 * 4 + i % 4 + i / 4 % 2 * n; };
  constexpr auto high = [](int i) { return n / 2 + i / 8 * 4 + i % 4 + i / 4 % 2 * n; };
  const F16 x = ShuffleRegisters<low>(a, b), y = ShuffleRegisters<high>(a, b);
  if constexpr (F16::kParts == 2) {
    a.part[0] = x.part[0], a.part[1] = y.part[0];
    b.part[0] = x.part[1], b.part[1] = y.part[1];
  } else {
    a = x, b = y;
  }
}

// Correctly rounded 1 / sqrt(v) of a quarter, in every quarter. The quarters of v are equal.
HW_INLINE F16 ReciprocalRootOfQuarter(F16 v) {
#if defined(__AVX__)
  __m128 quarter;
  std::memcpy(&quarter, &v, sizeof(quarter));
  const __m256d root = _mm256_sqrt_pd(_mm256_cvtps_pd(quarter));
  const __m128 r = _mm256_cvtpd_ps(_mm256_div_pd(_mm256_set1_pd(1.0), root));
#if defined(__AVX512F__)
  v.part[0] = _mm512_broadcast_f32x4(r);
#else
  v.part[0] = v.part[1] = _mm256_broadcast_ps(&r);
#endif
  return v;
#else
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    lanes[i] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(v[i % 4])));
  }
  return Load(lanes);
#endif
}

// --- bf16 in 32-bit words ------------------------------------------------------------------------

// To nearest bf16, ties to even, in the upper halves of the lanes; the lower halves are rubbish.
// NaN stays NaN where the lower half of x is 0, as it is in every NaN that bf16 values, Quieted()
// factors and the processor's own NaN lead to: the addend 0x8000 then carries nothing upwards.
HW_INLINE I16 RoundUpperHalf(F16 x) {
  const I16 u = ToBits(x);
#if defined(__AVX512F__)
  I16 t = u + I16(0x7fff);
  t.part[0] = I16::Part(_mm512_mask_add_epi32(
      __m512i(t.part[0]), _mm512_test_epi32_mask(__m512i(u.part[0]), _mm512_set1_epi32(0x10000)),
      __m512i(t.part[0]), _mm512_set1_epi32(1)));
  return t;
#else
  return u + ((u >> 16) & I16(1)) + I16(0x7fff);
#endif
}

constexpr std::int32_t kUpperHalf = static_cast<std::int32_t>(0xffff0000u);

HW_INLINE I16 ShiftRightLogical16(I16 x) {
  return I16::Map([](I16::Part p) { return I16::Part(I16::UnsignedPart(p) >> 16); }, x);
}

// NaN made the one whose lower half is 0.
HW_INLINE F16 Quieted(F16 x) {
  return Select(x != x, F16(std::numeric_limits<float>::quiet_NaN()), x);
}

// --- Stores --------------------------------------------------------------------------------------

// 64 bytes. With kStream around the caches: `to` is then aligned to 64.
template <bool kStream, typename Lane>
HW_INLINE void Store64(void* to, Vec16<Lane> v) {
  if constexpr (kStream) {
#if defined(__AVX512F__)
    _mm512_stream_si512(static_cast<__m512i*>(to), __m512i(v.part[0]));
    return;
#elif defined(__AVX__)
    _mm256_stream_si256(static_cast<__m256i*>(to), __m256i(v.part[0]));
    _mm256_stream_si256(static_cast<__m256i*>(to) + 1, __m256i(v.part[1]));
    return;
#endif
  }
  std::memcpy(to, &v, sizeof(v));
}

// --- Four heads ----------------------------------------------------------------------------------

template <typename T, int kDim>
struct FourHeads {
  static_assert(kDim % 32 == 0 && ((kDim / 32) & (kDim / 32 - 1)) == 0);
  static constexpr int kBlocks = kDim / 32;

  F16 v[kBlocks][8];

  // f(x) of every vector.
  template <typename F>
  HW_INLINE FourHeads Map(F f) const {
    FourHeads y;
    for (int s = 0; s < kBlocks; ++s) {
      for (int k = 0; k < 8; ++k) y.v[s][k] = f(v[s][k]);
    }
    return y;
  }

  HW_INLINE FourHeads Times(const FourHeads& other) const {
    FourHeads y;
    for (int s = 0; s < kBlocks; ++s) {
      for (int k = 0; k < 8; ++k) y.v[s][k] = v[s][k] * other.v[s][k];
    }
    return y;
  }

  // To storage and back.
  HW_INLINE FourHeads Rounded() const {
    if constexpr (std::is_same_v<T, BFloat16>) {
      return Map([](F16 x) { return FromBits(RoundUpperHalf(x) & I16(kUpperHalf)); });
    } else {
      return *this;
    }
  }

  HW_INLINE static FourHeads Load(const T* const (&head)[4]) {
    FourHeads y;
    for (int s = 0; s < kBlocks; ++s) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        I16 words[4];
        for (int h = 0; h < 4; ++h) std::memcpy(&words[h], head[h] + 32 * s, sizeof(words[h]));
        TransposeQuarters(words);
        for (int j = 0; j < 4; ++j) {
          y.v[s][2 * j] = FromBits(words[j] << 16);
          y.v[s][2 * j + 1] = FromBits(words[j] & I16(kUpperHalf));
        }
      } else {
        F16 low[4], high[4];  // elements 0-3 and 4-7 of each chunk
        for (int h = 0; h < 4; ++h) {
          low[h] = headwise::Load(head[h] + 32 * s);
          high[h] = headwise::Load(head[h] + 32 * s + 16);
          EvenAndOddQuarters(low[h], high[h]);
        }
        TransposeQuarters(low);
        TransposeQuarters(high);
        for (int k = 0; k < 4; ++k) y.v[s][k] = low[k], y.v[s][4 + k] = high[k];
      }
    }
    return y;
  }

  // Rounded to storage.
  template <bool kStream>
  HW_INLINE void Store(T* const (&head)[4]) const {
    for (int s = 0; s < kBlocks; ++s) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        I16 words[4];
        for (int j = 0; j < 4; ++j) {
          words[j] = ShiftRightLogical16(RoundUpperHalf(v[s][2 * j])) |
                     (RoundUpperHalf(v[s][2 * j + 1]) & I16(kUpperHalf));
        }
        TransposeQuarters(words);
        for (int h = 0; h < 4; ++h) Store64<kStream>(head[h] + 32 * s, words[h]);
      } else {
        F16 low[4], high[4];
        for (int k = 0; k < 4; ++k) low[k] = v[s][k], high[k] = v[s][4 + k];
        TransposeQuarters(low);
        TransposeQuarters(high);
        for (int h = 0; h < 4; ++h) {
          InterleaveQuarters(low[h], high[h]);
          Store64<kStream>(head[h] + 32 * s, low[h]);
          Store64<kStream>(head[h] + 32 * s + 16, high[h]);
        }
      }
    }
  }

  // S(a, b) / D of head h in every lane 4 c + h. (S * (1/D) has the same bits: D is a power of 2.)
  HW_INLINE static F16 MeanProduct(const FourHeads& a, const FourHeads& b) {
    F16 p[kBlocks];
    for (int s = 0; s < kBlocks; ++s) {
      p[s] = F16(0.0f);
      for (int k = 0; k < 8; ++k) p[s] = Fma(a.v[s][k], b.v[s][k], p[s]);
    }
    for (int n = kBlocks / 2; n >= 1; n /= 2) {
      for (int s = 0; s < n; ++s) p[s] = p[s] + p[s + n];
    }
    p[0] = p[0] + SwapHalves(p[0]);
    p[0] = p[0] + SwapNeighbours(p[0]);
    return p[0] * F16(1.0f / kDim);
  }
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
      for (int s = 0; s < kBlocks; ++s) SpreadChunks(list_.factor.data() + 32 * s, factor_->v[s]);
    }
  }

  // One row of the rotary table, spread over lanes like the heads. kHalf: pair 32 s + 8 c + k in
  // lanes 4 c + h of [8 s + k]. kInterleaved: pair 16 s + 4 c + j in those of [4 s + j].
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

  void Forward(const T* packed, const T* next_packed, const Turn& turn, T* out) const {
    stream_ ? ForwardRow<true>(packed, next_packed, turn, out)
            : ForwardRow<false>(packed, next_packed, turn, out);
  }

  void Backward(const T* packed, const T* d, const T* next_packed, const T* next_d,
                const Turn& turn, T* dpacked, float* sums) const {
    stream_ ? BackwardRow<true>(packed, d, next_packed, next_d, turn, dpacked, sums)
            : BackwardRow<false>(packed, d, next_packed, next_d, turn, dpacked, sums);
  }

  std::int64_t SumsSize() const { return list_.size() * kDim; }
  float SumAt(const float* sums, std::int64_t h, std::int64_t d) const {
    return sums[h / 4 * 4 * kDim + (d / 32 * 8 + d % 8) * kLanes + d % 32 / 8 * 4 + h % 4];
  }

 private:
  // 32 values to the lanes of every head.
  HW_INLINE static void SpreadChunks(const float* from, F16* to) {
    F16 low = Quieted(Load(from)), high = Quieted(Load(from + 16));
    EvenAndOddQuarters(low, high);
    F16 l[4] = {low, low, low, low}, h[4] = {high, high, high, high};
    TransposeQuarters(l);
    TransposeQuarters(h);
    for (int k = 0; k < 4; ++k) to[k] = l[k], to[4 + k] = h[k];
  }

  // 16 values: value 4 c + j to lanes 4 c + h of to[j].
  HW_INLINE static void SpreadQuarters(const float* from, F16* to) {
    const F16 values = Quieted(Load(from));
    F16 v[4] = {values, values, values, values};
    TransposeQuarters(v);
    for (int j = 0; j < 4; ++j) to[j] = v[j];
  }

  HW_INLINE F16 ReciprocalRms(const Four& x) const {
    return ReciprocalRootOfQuarter(Four::MeanProduct(x, x) + F16(epsilon_));
  }

  // Pairs (y1, y2) become (y1 c - y2 s, y2 c + y1 s), or with kBack the transpose.
  template <bool kBack>
  HW_INLINE static void RotatePair(F16& first, F16& second, F16 c, F16 s) {
    const F16 y1 = first, y2 = second;
    first = kBack ? y1 * c + y2 * s : y1 * c - y2 * s;
    second = kBack ? y2 * c - y1 * s : y2 * c + y1 * s;
  }

  template <bool kBack>
  HW_INLINE void Rotate(Four& y, const Turn& turn) const {
    const std::int64_t rotary_dim = rotary_->rotary_dim();
    if (rotary_->pairing() == RotaryPairing::kHalf) {
      RotateHalves<kBack, kBlocks / 2>(y, turn, rotary_dim);
      if constexpr (kBlocks >= 4) RotateHalves<kBack, kBlocks / 4>(y, turn, rotary_dim);
    } else {
      for (int s = 0; s < kBlocks; ++s) {
        if (32 * s >= rotary_dim) break;
        for (int j = 0; j < 4; ++j) {
          RotatePair<kBack>(y.v[s][2 * j], y.v[s][2 * j + 1], turn.cos[4 * s + j],
                            turn.sin[4 * s + j]);
        }
      }
    }
  }

  // If kHalfBlocks blocks are half of the rotary dimension: a constant, so that vectors stay in
  // registers.
  template <bool kBack, int kHalfBlocks>
  HW_INLINE static void RotateHalves(Four& y, const Turn& turn, std::int64_t rotary_dim) {
    if (rotary_dim != 64 * kHalfBlocks) return;
    for (int s = 0; s < kHalfBlocks; ++s) {
      for (int k = 0; k < 8; ++k) {
        RotatePair<kBack>(y.v[s][k], y.v[s + kHalfBlocks][k], turn.cos[8 * s + k],
                          turn.sin[8 * s + k]);
      }
    }
  }

  HW_INLINE static void Prefetch(const T* head) {
    for (int i = 0; i < kDim; i += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(head + i);
  }

  template <bool kStream>
  void ForwardRow(const T* packed, const T* next_packed, const Turn& turn, T* out) const {
    for (std::size_t i = 0; i < list_.heads.size(); i += 4) {
      const HeadList::Place* place = &list_.heads[i];
      const T* from[4];
      T* to[4];
      for (int h = 0; h < 4; ++h) {
        from[h] = packed + place[h].packed;
        to[h] = out + place[h].separate;
        Prefetch(next_packed + place[h].packed);
      }
      Four y = Four::Load(from);
      if (norm_) {
        const F16 r = ReciprocalRms(y);
        y = y.Map([r](F16 x) { return x * r; });
        if (round_before_weight_) y = y.Rounded();
        if (factor_ != nullptr) y = y.Times(*factor_);
        if (round_) y = y.Rounded();
        if (list_.scale != 1.0f) {
          y = y.Map([scale = F16(list_.scale)](F16 x) { return x * scale; });
          if (round_) y = y.Rounded();
        }
      }
      if (rotary_ != nullptr) Rotate<false>(y, turn);
      y.template Store<kStream>(to);
    }
  }

  template <bool kStream>
  void BackwardRow(const T* packed, const T* d, const T* next_packed, const T* next_d,
                   const Turn& turn, T* dpacked, float* sums) const {
    for (std::size_t i = 0; i < list_.heads.size(); i += 4) {
      const HeadList::Place* place = &list_.heads[i];
      const T* from[4];
      const T* from_d[4];
      T* to[4];
      for (int h = 0; h < 4; ++h) {
        from[h] = packed + place[h].packed;
        from_d[h] = d + place[h].separate;
        to[h] = dpacked + place[h].packed;
        if (norm_) Prefetch(next_packed + place[h].packed);
        Prefetch(next_d + place[h].separate);
      }
      Four g = Four::Load(from_d);
      if (rotary_ != nullptr) {
        Rotate<true>(g, turn);
        if (round_) g = g.Rounded();
      }
      if (norm_) {
        if (list_.scale != 1.0f) {
          g = g.Map([scale = F16(list_.scale)](F16 x) { return x * scale; });
          if (round_) g = g.Rounded();
        }
        const Four x = Four::Load(from);
        const F16 r = ReciprocalRms(x);
        const Four xh = x.Map([r](F16 e) { return e * r; });
        if (sums != nullptr) {
          float* sum = sums + i * kDim;
          round_before_weight_ ? AddProduct(g, xh.Rounded(), sum) : AddProduct(g, xh, sum);
          g = g.Times(*factor_);
          if (round_before_weight_) g = g.Rounded();
        }
        const F16 c1 = Four::MeanProduct(g, xh);
        for (int s = 0; s < kBlocks; ++s) {
          for (int k = 0; k < 8; ++k) g.v[s][k] = r * Fma(-xh.v[s][k], c1, g.v[s][k]);
        }
      }
      g.template Store<kStream>(to);
    }
  }

  // sum = fma(g, xh, sum), in the order of the vectors.
  HW_INLINE static void AddProduct(const Four& g, const Four& xh, float* sum) {
    for (int s = 0; s < kBlocks; ++s) {
      for (int k = 0; k < 8; ++k, sum += kLanes) {
        headwise::Store(sum, Fma(g.v[s][k], xh.v[s][k], Load(sum)));
      }
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

#undef HW_INLINE

}  // namespace headwise::internal

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_FOUR_HEADS_H_
