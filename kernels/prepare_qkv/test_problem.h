// Problems for the tests of prepare_qkv: inputs of a given shape and kind, outputs that notice what
// is written where it should not be, and one way to run and compare every implementation.
//
//   const Problem<BFloat16> problem({.head_dim = 64, .values = Values::kInfinities});
//   const Results<BFloat16> expected = problem.RunReference();
//   EXPECT_EQ(Difference(problem.RunCpu(pool), expected), "");
#ifndef HEADWISE_KERNELS_PREPARE_QKV_TEST_PROBLEM_H_
#define HEADWISE_KERNELS_PREPARE_QKV_TEST_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// What the packed row, the gradients and (where they differ from Gaussian) the weights hold.
enum class Values {
  kGaussian,
  kIntegers,      // small multiples of 2^-8, made without libm: the goldens' inputs
  kHuge,          // up to the largest finite number
  kSubnormal,     // down to the smallest subnormal
  kSignedZeros,   // half of them zeros, of both signs
  kInfinities,    // one in sixteen
  kNans,          // one in sixteen, of many payloads; also in the weights and the rotary table
  kOneHotPerHead  // one element per head, different for every head: finds a head in a wrong slot
};
inline constexpr Values kAllValues[] = {
    Values::kGaussian,    Values::kIntegers,   Values::kHuge, Values::kSubnormal,
    Values::kSignedZeros, Values::kInfinities, Values::kNans, Values::kOneHotPerHead};

struct Shape {
  std::int64_t tokens = 3;
  std::int64_t kv_heads = 2;
  std::int64_t group_size = 3;  // H / G
  std::int64_t head_dim = 64;
  Packing packing = Packing::kInterleavedPerKvGroup;
  HeadNorm norm = HeadNorm::kWeighted;
  Rounding rounding = Rounding::kAfterWeight;
  float query_scale = 1.0f;  // not used with HeadNorm::kNone
  float epsilon = 1e-6f;
  std::optional<RotaryPairing> pairing = RotaryPairing::kHalf;  // nullopt: NoPE
  std::int64_t rotary_dim = -1;                                 // -1: head_dim
  Values values = Values::kGaussian;
  std::int64_t row_gap = 0;   // elements between rows of every matrix
  std::int64_t misalign = 0;  // elements by which every matrix starts off a multiple of 64 bytes
  bool write_v = true;
  std::uint64_t seed = 1;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

// A matrix with canaries around it and between its rows. Starts as canaries throughout.
template <typename T>
class GuardedRows {
 public:
  GuardedRows() = default;
  GuardedRows(std::int64_t rows, std::int64_t width, std::int64_t row_gap, std::int64_t misalign);

  // Constness is not deep, as in RowSpan.
  RowSpan<T> span() const { return {storage_.data() + offset_, rows_, width_, stride_}; }
  // Whether nothing but elements of the matrix has been written.
  bool GuardsIntact() const;
  // Whether nothing at all has been written.
  bool Untouched() const;
  // The matrix with its canaries, for a copy elsewhere and back.
  absl::Span<T> storage() const { return absl::MakeSpan(storage_); }

 private:
  mutable std::vector<T> storage_;
  std::int64_t rows_ = 0, width_ = 0, stride_ = 0, offset_ = 0;
};

// Everything that forward and backward write.
template <typename T>
struct Results {
  GuardedRows<T> q, k, v, dpacked;
  GuardedRows<Compute<T>> dq_weight, dk_weight;  // per group
};

// "" if all bits are equal (any NaN equals any NaN) and all guards are intact, else what differs:
// the matrix, how many elements, and the first of them.
template <typename T>
std::string Difference(const Results<T>& actual, const Results<T>& expected);

// Whether none of the results has been written.
template <typename T>
bool Untouched(const Results<T>& results);

// FNV-1a of all results, NaN made canonical.
template <typename T>
std::uint64_t Hash(const Results<T>& results);

// Inputs, owned. T is float, BFloat16 or double.
template <typename T>
class Problem {
 public:
  explicit Problem(const Shape& shape);
  // `op` points into the problem.
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const QkvPreparation& op() const { return op_; }
  QkvInputs<T> inputs() const;
  QkvGradients<T> gradients() const;

  Results<T> MakeResults() const;
  static QkvOutputs<T> Outputs(const Results<T>& results);
  PackedGradients<T> Gradients(const Results<T>& results) const;

  // Forward and backward.
  Results<T> RunReference() const;
  Results<T> RunCpu(ThreadPool& pool) const;  // through PrepareQkv and PrepareQkvBackward
  Results<T> RunUnfused(ThreadPool& pool) const;

 private:
  Shape shape_;
  RotaryTable table_;
  QkvPreparation op_;
  GuardedRows<T> packed_, dq_, dk_, dv_;
  std::vector<Compute<T>> q_weight_, k_weight_;
  std::vector<std::int64_t> positions_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_TEST_PROBLEM_H_
