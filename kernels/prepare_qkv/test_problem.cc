#include "kernels/prepare_qkv/test_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/split_mix.h"
#include "core/rope/testing/integer_rotary_table.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/reference.h"
#include "kernels/prepare_qkv/unfused.h"

namespace headwise {
namespace {

constexpr std::int64_t kGuard = 64;        // elements before and after a matrix
constexpr std::int64_t kTableLength = 97;  // positions repeat beyond it
constexpr unsigned char kCanary = 0xa5;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Bits() { return NextSplitMix(state_); }
  // [0, 1)
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  double Gaussian() {
    return std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283185307179586 * Uniform());
  }

 private:
  std::uint64_t state_;
};

template <typename T>
T AnyNan(Random& random) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16{static_cast<std::uint16_t>(0x7f81u | (random.Bits() & 0x807fu))};
  } else if constexpr (std::is_same_v<T, float>) {
    // All ones too: rounding it carelessly carries out of the exponent.
    const std::uint32_t payload =
        random.Bits() % 2 == 0 ? 0x7fffffu : static_cast<std::uint32_t>(random.Bits()) & 0x7fffffu;
    return std::bit_cast<float>((static_cast<std::uint32_t>(random.Bits()) & 0x80000000u) |
                                0x7f800001u | payload);
  } else {
    return std::numeric_limits<T>::quiet_NaN();
  }
}

template <typename T>
T MakeValue(Values values, Random& random) {
  using C = Compute<T>;
  const double sign = random.Bits() % 2 == 0 ? 1 : -1;
  const bool rare = random.Bits() % 16 == 0;
  switch (values) {
    case Values::kIntegers:
      return Narrow<T>(static_cast<C>(static_cast<std::int64_t>(random.Bits() % 2047) - 1023) /
                       C{256});
    case Values::kHuge:
      return Narrow<T>(static_cast<C>(sign * std::exp2(96 + 31.99 * random.Uniform())));
    case Values::kSubnormal:
      return Narrow<T>(static_cast<C>(sign * std::exp2(-150 + 30 * random.Uniform())));
    case Values::kSignedZeros:
      if (random.Bits() % 2 == 0) return Narrow<T>(static_cast<C>(sign * 0.0));
      break;
    case Values::kInfinities:
      if (rare) return Narrow<T>(static_cast<C>(sign * std::numeric_limits<C>::infinity()));
      break;
    case Values::kNans:
      if (rare) return AnyNan<T>(random);
      break;
    case Values::kGaussian:
    case Values::kOneHotPerHead:
      break;
  }
  return Narrow<T>(static_cast<C>(random.Gaussian()));
}

template <typename T>
void Fill(RowSpan<T> rows, Values values, std::int64_t head_dim, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t t = 0; t < rows.rows; ++t) {
    for (std::int64_t i = 0; i < rows.width; ++i) rows.row(t)[i] = MakeValue<T>(values, random);
    if (values != Values::kOneHotPerHead) continue;
    for (std::int64_t slot = 0; slot < rows.width / head_dim; ++slot) {
      T* head = rows.row(t) + slot * head_dim;
      std::fill_n(head, head_dim, T{});
      head[(slot + t) % head_dim] = Narrow<T>(static_cast<Compute<T>>(slot + 1));
    }
  }
}

template <typename C>
std::vector<C> MakeWeight(const Shape& shape, std::uint64_t seed) {
  std::vector<C> weight(HasWeight(shape.norm) ? shape.head_dim : 0);
  Random random(seed);
  const Values values = shape.values == Values::kOneHotPerHead ? Values::kIntegers : shape.values;
  for (C& w : weight) w = MakeValue<C>(values, random);
  return weight;
}

RotaryTable MakeTable(const Shape& shape) {
  const std::int64_t rotary_dim = shape.rotary_dim < 0 ? shape.head_dim : shape.rotary_dim;
  const RotaryPairing pairing = shape.pairing.value_or(RotaryPairing::kHalf);
  RotaryTable table = IntegerRotaryTable(kTableLength, rotary_dim, pairing);
  if (shape.values != Values::kNans) return table;
  const std::int64_t size = kTableLength * rotary_dim / 2;
  std::vector<float> cos(table.Cos(0), table.Cos(0) + size);
  std::vector<float> sin(table.Sin(0), table.Sin(0) + size);
  Random random(shape.seed + 99);
  for (std::vector<float>* values : {&cos, &sin}) {
    for (float& x : *values) {
      if (random.Bits() % 32 == 0) x = AnyNan<float>(random);
    }
  }
  return *RotaryTable::FromValues(kTableLength, rotary_dim, pairing, cos, sin);
}

QkvPreparation MakeOp(const Shape& shape, const RotaryTable* table) {
  return {
      .layout = *PackedQkv::Create(shape.packing, {.query_heads = shape.kv_heads * shape.group_size,
                                                   .kv_heads = shape.kv_heads,
                                                   .head_dim = shape.head_dim}),
      .norm = shape.norm,
      .epsilon = shape.epsilon,
      .query_scale = shape.norm == HeadNorm::kNone ? 1.0f : shape.query_scale,
      .rotary = shape.pairing.has_value() ? table : nullptr,
      .rounding = shape.rounding};
}

template <typename T>
bool IsCanary(const T& x) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &x, sizeof(T));
  return std::all_of(bytes, bytes + sizeof(T), [](unsigned char b) { return b == kCanary; });
}

template <typename T>
bool IsNan(T x) {
  return Widen(x) != Widen(x);
}

// The bits of x; one pattern for all NaN.
template <typename T>
std::uint64_t CanonicalBits(T x) {
  if (IsNan(x)) return std::uint64_t{0x7fff} << 48;
  if constexpr (sizeof(T) == 2) return std::bit_cast<std::uint16_t>(x);
  if constexpr (sizeof(T) == 4) return std::bit_cast<std::uint32_t>(x);
  if constexpr (sizeof(T) == 8) return std::bit_cast<std::uint64_t>(x);
}

template <typename T>
std::string DifferenceOf(const char* name, const GuardedRows<T>& actual,
                         const GuardedRows<T>& expected) {
  const RowSpan<T> a = actual.span(), e = expected.span();
  HW_CHECK_EQ(a.rows, e.rows);
  HW_CHECK_EQ(a.width, e.width);
  std::int64_t count = 0;
  std::string first;
  for (std::int64_t t = 0; t < e.rows; ++t) {
    for (std::int64_t i = 0; i < e.width; ++i) {
      if (CanonicalBits(a.row(t)[i]) == CanonicalBits(e.row(t)[i])) continue;
      if (count++ == 0) {
        first = absl::StrFormat("row %d element %d: %.9g, expected %.9g", t, i, Widen(a.row(t)[i]),
                                Widen(e.row(t)[i]));
      }
    }
  }
  std::string message;
  if (count > 0) {
    message = absl::StrFormat("%s: %d of %d differ, first %s\n", name, count, e.size(), first);
  }
  if (!actual.GuardsIntact()) absl::StrAppend(&message, name, ": written outside the matrix\n");
  return message;
}

template <typename T>
void HashRows(const GuardedRows<T>& rows, std::uint64_t& hash) {
  const RowSpan<T> span = rows.span();
  for (std::int64_t t = 0; t < span.rows; ++t) {
    for (std::int64_t i = 0; i < span.width; ++i) {
      const std::uint64_t bits = CanonicalBits(span.row(t)[i]);
      for (int byte = 0; byte < 8; ++byte) {
        hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3u;
      }
    }
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  out << "tokens=" << s.tokens << " kv_heads=" << s.kv_heads << " group_size=" << s.group_size
      << " head_dim=" << s.head_dim << " packing=" << Name(s.packing)
      << " norm=" << static_cast<int>(s.norm) << " rounding=" << static_cast<int>(s.rounding)
      << " query_scale=" << s.query_scale << " epsilon=" << s.epsilon
      << " rope=" << (s.pairing.has_value() ? Name(*s.pairing) : "none")
      << " rotary_dim=" << s.rotary_dim << " values=" << static_cast<int>(s.values)
      << " row_gap=" << s.row_gap << " misalign=" << s.misalign << " write_v=" << s.write_v
      << " seed=" << s.seed;
  return out;
}

template <typename T>
GuardedRows<T>::GuardedRows(std::int64_t rows, std::int64_t width, std::int64_t row_gap,
                            std::int64_t misalign)
    : storage_(rows * (width + row_gap) + 3 * kGuard + misalign),
      rows_(rows),
      width_(width),
      stride_(width + row_gap) {
  std::memset(static_cast<void*>(storage_.data()), kCanary, storage_.size() * sizeof(T));
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(storage_.data());
  const std::int64_t to_64 = static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(T));
  offset_ = kGuard + to_64 + misalign;
}

template <typename T>
bool GuardedRows<T>::GuardsIntact() const {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(storage_.size()); ++i) {
    const std::int64_t at = i - offset_;
    const bool inside = at >= 0 && at < rows_ * stride_ && at % stride_ < width_;
    if (!inside && !IsCanary(storage_[i])) return false;
  }
  return true;
}

template <typename T>
bool GuardedRows<T>::Untouched() const {
  return std::all_of(storage_.begin(), storage_.end(), IsCanary<T>);
}

template <typename T>
bool Untouched(const Results<T>& r) {
  return r.q.Untouched() && r.k.Untouched() && r.v.Untouched() && r.dpacked.Untouched() &&
         r.dq_weight.Untouched() && r.dk_weight.Untouched();
}

template <typename T>
std::string Difference(const Results<T>& actual, const Results<T>& expected) {
  return absl::StrCat(DifferenceOf("q", actual.q, expected.q),
                      DifferenceOf("k", actual.k, expected.k),
                      DifferenceOf("v", actual.v, expected.v),
                      DifferenceOf("dpacked", actual.dpacked, expected.dpacked),
                      DifferenceOf("dq_weight", actual.dq_weight, expected.dq_weight),
                      DifferenceOf("dk_weight", actual.dk_weight, expected.dk_weight));
}

template <typename T>
std::uint64_t Hash(const Results<T>& results) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  HashRows(results.q, hash);
  HashRows(results.k, hash);
  HashRows(results.v, hash);
  HashRows(results.dpacked, hash);
  HashRows(results.dq_weight, hash);
  HashRows(results.dk_weight, hash);
  return hash;
}

template <typename T>
Problem<T>::Problem(const Shape& shape)
    : shape_(shape), table_(MakeTable(shape)), op_(MakeOp(shape, &table_)) {
  const PackedQkv& layout = op_.layout;
  const auto make = [&](std::int64_t heads, std::uint64_t seed) {
    GuardedRows<T> rows(shape.tokens, heads * shape.head_dim, shape.row_gap, shape.misalign);
    Fill(rows.span(), shape.values, shape.head_dim, seed);
    return rows;
  };
  packed_ = make(layout.slots(), 10 * shape.seed + 1);
  dq_ = make(layout.query_heads(), 10 * shape.seed + 2);
  dk_ = make(layout.kv_heads(), 10 * shape.seed + 3);
  dv_ = make(layout.kv_heads(), 10 * shape.seed + 4);
  q_weight_ = MakeWeight<Compute<T>>(shape, 10 * shape.seed + 5);
  k_weight_ = MakeWeight<Compute<T>>(shape, 10 * shape.seed + 6);
  if (op_.rotary == nullptr) return;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    positions_.push_back((7 * t + 3 * shape.seed) % kTableLength);
  }
}

template <typename T>
QkvInputs<T> Problem<T>::inputs() const {
  return {packed_.span(), q_weight_, k_weight_, positions_};
}

template <typename T>
QkvGradients<T> Problem<T>::gradients() const {
  return {dq_.span(), dk_.span(), dv_.span()};
}

template <typename T>
Results<T> Problem<T>::MakeResults() const {
  const std::int64_t dim = shape_.head_dim;
  const auto make = [&](std::int64_t heads) {
    return GuardedRows<T>(shape_.tokens, heads * dim, shape_.row_gap, shape_.misalign);
  };
  Results<T> results;
  results.q = make(op_.layout.query_heads());
  results.k = make(op_.layout.kv_heads());
  if (shape_.write_v) results.v = make(op_.layout.kv_heads());
  results.dpacked = make(op_.layout.slots());
  if (HasWeight(op_.norm)) {
    for (auto* weight : {&results.dq_weight, &results.dk_weight}) {
      *weight = GuardedRows<Compute<T>>(shape_.kv_heads, dim, shape_.row_gap, shape_.misalign);
    }
  }
  return results;
}

template <typename T>
QkvOutputs<T> Problem<T>::Outputs(const Results<T>& results) {
  QkvOutputs<T> out{results.q.span(), results.k.span(), results.v.span()};
  if (out.v.rows == 0 && out.q.rows > 0) out.v = {};
  return out;
}

template <typename T>
PackedGradients<T> Problem<T>::Gradients(const Results<T>& results) const {
  PackedGradients<T> out{results.dpacked.span()};
  if (HasWeight(op_.norm)) {
    out.dq_weight_per_group = results.dq_weight.span();
    out.dk_weight_per_group = results.dk_weight.span();
  }
  return out;
}

template <typename T>
Results<T> Problem<T>::RunReference() const {
  Results<T> results = MakeResults();
  absl::Status status = PrepareQkvReference<T>(op_, inputs(), Outputs(results));
  HW_CHECK(status.ok()) << status;
  status = PrepareQkvBackwardReference<T>(op_, inputs(), gradients(), Gradients(results));
  HW_CHECK(status.ok()) << status;
  return results;
}

template <typename T>
Results<T> Problem<T>::RunCpu(ThreadPool& pool) const {
  Results<T> results = MakeResults();
  absl::Status status = PrepareQkv<T>(op_, inputs(), Outputs(results), pool);
  HW_CHECK(status.ok()) << status;
  status = PrepareQkvBackward<T>(op_, inputs(), gradients(), Gradients(results), pool);
  HW_CHECK(status.ok()) << status;
  return results;
}

template <typename T>
Results<T> Problem<T>::RunUnfused(ThreadPool& pool) const {
  Results<T> results = MakeResults();
  PrepareQkvUnfused<T>(op_, inputs(), Outputs(results), pool);
  PrepareQkvBackwardUnfused<T>(op_, inputs(), gradients(), Gradients(results), pool);
  return results;
}

#define HW_INSTANTIATE(T)                                                \
  template class GuardedRows<T>;                                         \
  template class Problem<T>;                                             \
  template std::string Difference(const Results<T>&, const Results<T>&); \
  template bool Untouched(const Results<T>&);                            \
  template std::uint64_t Hash(const Results<T>&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
HW_INSTANTIATE(double);
#undef HW_INSTANTIATE

}  // namespace headwise
