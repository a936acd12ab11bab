// What prepare_qkv means: the textbook formula, exact copies, gradients against differences, rows
// that do not feel their neighbours, weight gradients that add up over shards.
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/reference.h"
#include "kernels/prepare_qkv/test_problem.h"
#include "kernels/prepare_qkv/unfused.h"

namespace headwise {
namespace {

constexpr HeadNorm kNorms[] = {HeadNorm::kNone, HeadNorm::kScaleless, HeadNorm::kWeighted,
                               HeadNorm::kGainCentered};
constexpr std::optional<RotaryPairing> kPairings[] = {RotaryPairing::kHalf,
                                                      RotaryPairing::kInterleaved, std::nullopt};

// The head as its paper has it, in double: no chunks, no trees.
std::vector<double> TextbookHead(const QkvPreparation& op, const float* x,
                                 absl::Span<const float> weight, double scale,
                                 std::int64_t position) {
  const std::int64_t dim = op.layout.head_dim();
  std::vector<double> y(x, x + dim);
  if (op.norm != HeadNorm::kNone) {
    double squares = 0;
    for (const double e : y) squares += e * e;
    const double rms = std::sqrt(squares / static_cast<double>(dim) + op.epsilon);
    for (std::int64_t i = 0; i < dim; ++i) {
      const double w = op.norm == HeadNorm::kScaleless      ? 1.0
                       : op.norm == HeadNorm::kGainCentered ? 1.0 + weight[i]
                                                            : weight[i];
      y[i] = y[i] / rms * w * scale;
    }
  }
  if (op.rotary == nullptr) return y;
  const std::int64_t half = op.rotary->rotary_dim() / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double c = op.rotary->Cos(position)[i], s = op.rotary->Sin(position)[i];
    const bool interleaved = op.rotary->pairing() == RotaryPairing::kInterleaved;
    double& a = y[interleaved ? 2 * i : i];
    double& b = y[interleaved ? 2 * i + 1 : i + half];
    const double a_before = a;
    a = a * c - b * s;
    b = b * c + a_before * s;
  }
  return y;
}

TEST(Forward, IsTheTextbookFormula) {
  ThreadPool pool(1);
  for (const Packing packing : {Packing::kInterleavedPerKvGroup, Packing::kSectioned}) {
    for (const HeadNorm norm : kNorms) {
      for (const auto& pairing : kPairings) {
        for (const std::int64_t head_dim : {64, 30}) {
          const Shape shape{.kv_heads = 3,
                            .group_size = 5,
                            .head_dim = head_dim,
                            .packing = packing,
                            .norm = norm,
                            .query_scale = 0.7f,
                            .pairing = pairing};
          SCOPED_TRACE(testing::Message() << shape);
          const Problem<float> problem(shape);
          const QkvInputs<float> in = problem.inputs();
          const Results<float> results = problem.RunCpu(pool);
          const auto check = [&](std::int64_t t, std::int64_t slot, absl::Span<const float> weight,
                                 double scale, const float* actual) {
            const std::vector<double> expected =
                TextbookHead(problem.op(), in.packed.row(t) + slot * head_dim, weight, scale,
                             in.positions.empty() ? 0 : in.positions[t]);
            for (std::int64_t i = 0; i < head_dim; ++i) {
              EXPECT_NEAR(actual[i], expected[i], 2e-6 * (1 + std::abs(expected[i])));
            }
          };
          for (std::int64_t t = 0; t < 3; ++t) {
            for (std::int64_t g = 0; g < 3; ++g) {
              const bool sectioned = packing == Packing::kSectioned;
              for (std::int64_t j = 0; j < 5; ++j) {
                check(t, sectioned ? 5 * g + j : 7 * g + j, in.q_weight, problem.op().query_scale,
                      results.q.span().row(t) + (5 * g + j) * head_dim);
              }
              check(t, sectioned ? 15 + g : 7 * g + 5, in.k_weight, 1.0,
                    results.k.span().row(t) + g * head_dim);
            }
          }
        }
      }
    }
  }
}

template <typename T>
void ExpectSameBytes(const T* a, const T* b, std::int64_t n) {
  EXPECT_EQ(std::memcmp(a, b, n * sizeof(T)), 0);
}

// NaN payloads too, which comparisons elsewhere forgive.
template <typename T>
void CheckCopies() {
  ThreadPool pool(2);
  for (const std::int64_t dim : {64, 128, 14}) {
    const Problem<T> problem({.tokens = 20,
                              .head_dim = dim,
                              .norm = HeadNorm::kNone,
                              .pairing = std::nullopt,
                              .values = Values::kNans});
    const PackedQkv& layout = problem.op().layout;
    const RowSpan<const T> packed = problem.inputs().packed;
    const QkvGradients<T> d = problem.gradients();
    const Results<T> r = problem.RunCpu(pool);
    for (std::int64_t t = 0; t < 20; ++t) {
      const auto slot = [&](const auto& rows, std::int64_t s) { return rows.row(t) + s * dim; };
      for (std::int64_t h = 0; h < layout.query_heads(); ++h) {
        ExpectSameBytes<T>(slot(r.q.span(), h), slot(packed, layout.QuerySlot(h)), dim);
        ExpectSameBytes<T>(slot(r.dpacked.span(), layout.QuerySlot(h)), slot(d.dq, h), dim);
      }
      for (std::int64_t g = 0; g < layout.kv_heads(); ++g) {
        ExpectSameBytes<T>(slot(r.k.span(), g), slot(packed, layout.KeySlot(g)), dim);
        ExpectSameBytes<T>(slot(r.v.span(), g), slot(packed, layout.ValueSlot(g)), dim);
        ExpectSameBytes<T>(slot(r.dpacked.span(), layout.KeySlot(g)), slot(d.dk, g), dim);
        ExpectSameBytes<T>(slot(r.dpacked.span(), layout.ValueSlot(g)), slot(d.dv, g), dim);
      }
    }
  }
}

TEST(Copies, AreOfBits) {
  CheckCopies<float>();
  CheckCopies<BFloat16>();
}

TEST(Copies, VOfANormalisedLayerToo) {
  ThreadPool pool(1);
  const Problem<BFloat16> problem({.tokens = 5, .values = Values::kNans});
  const Results<BFloat16> r = problem.RunCpu(pool);
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t g = 0; g < 2; ++g) {
      const std::int64_t at = problem.op().layout.ValueSlot(g) * 64;
      ExpectSameBytes(r.v.span().row(t) + g * 64, problem.inputs().packed.row(t) + at, 64);
      ExpectSameBytes(r.dpacked.span().row(t) + at, problem.gradients().dv.row(t) + g * 64, 64);
    }
  }
}

// sum of outputs times their gradients: the loss whose gradient backward computes.
double Loss(const Problem<double>& problem, const QkvInputs<double>& in) {
  Results<double> r = problem.MakeResults();
  EXPECT_TRUE(PrepareQkvReference<double>(problem.op(), in, Problem<double>::Outputs(r)).ok());
  const QkvGradients<double> d = problem.gradients();
  double loss = 0;
  const auto add = [&loss](RowSpan<double> y, RowSpan<const double> dy) {
    for (std::int64_t t = 0; t < y.rows; ++t) {
      for (std::int64_t i = 0; i < y.width; ++i) loss += y.row(t)[i] * dy.row(t)[i];
    }
  };
  add(r.q.span(), d.dq);
  add(r.k.span(), d.dk);
  add(r.v.span(), d.dv);
  return loss;
}

// d loss / d x by central differences of steps h and 2 h, extrapolated: error O(h^4).
double Derivative(double& x, const std::function<double()>& loss) {
  constexpr double kStep = 1e-3;
  const double at = x;
  const auto difference = [&](double step) {
    x = at + step;
    const double above = loss();
    x = at - step;
    return above - loss();
  };
  const double near = difference(kStep), far = difference(2 * kStep);
  x = at;
  return (8 * near - far) / (12 * kStep);
}

TEST(Backward, IsTheDerivativeOfForward) {
  ThreadPool pool(1);
  std::uint64_t seed = 0;
  double worst = 0;
  for (const HeadNorm norm : kNorms) {
    for (const auto& pairing : kPairings) {
      for (const std::int64_t head_dim : {10, 32}) {
        const Problem<double> problem(
            {.tokens = 2,
             .head_dim = head_dim,
             .packing = ++seed % 2 == 0 ? Packing::kSectioned : Packing::kInterleavedPerKvGroup,
             .norm = norm,
             .query_scale = 1.3f,
             .epsilon = 1e-3f,
             .pairing = pairing,
             .rotary_dim = head_dim == 10 ? 6 : 32,
             .seed = seed});
        const Results<double> r = problem.RunCpu(pool);
        QkvInputs<double> in = problem.inputs();
        std::vector<double> q_weight(in.q_weight.begin(), in.q_weight.end());
        std::vector<double> k_weight(in.k_weight.begin(), in.k_weight.end());
        in.q_weight = q_weight;
        in.k_weight = k_weight;
        const auto check = [&](double& x, double gradient) {
          const double expected = Derivative(x, [&] { return Loss(problem, in); });
          const double error = std::abs(gradient - expected) / (1 + std::abs(expected));
          worst = std::max(worst, error);
          EXPECT_LE(error, 1e-7) << gradient << " vs " << expected;
        };
        double* packed = const_cast<double*>(in.packed.row(1));
        for (std::int64_t i = seed % 5; i < in.packed.width; i += 5) {
          check(packed[i], r.dpacked.span().row(1)[i]);
        }
        for (std::size_t i = 0; i < q_weight.size(); i += 3) {
          std::vector<double> dq_weight(head_dim), dk_weight(head_dim);
          ReduceHeadNormGradient<double>(r.dq_weight.span(), absl::MakeSpan(dq_weight));
          ReduceHeadNormGradient<double>(r.dk_weight.span(), absl::MakeSpan(dk_weight));
          check(q_weight[i], dq_weight[i]);
          check(k_weight[i], dk_weight[i]);
        }
      }
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

// One row by itself has the bits that it has among others.
template <typename T>
void CheckRowsAreIndependent() {
  ThreadPool pool(2);
  for (const std::int64_t dim : {64, 18}) {
    const Problem<T> problem({.tokens = 70, .group_size = 5, .head_dim = dim});
    const Results<T> all = problem.RunCpu(pool);
    for (const std::int64_t t : {0, 1, 17, 63, 64, 69}) {
      const Results<T> alone = problem.MakeResults();
      QkvInputs<T> in = problem.inputs();
      QkvGradients<T> d = problem.gradients();
      in.packed = in.packed.Rows(t, 1);
      in.positions = in.positions.subspan(t, 1);
      d = {d.dq.Rows(t, 1), d.dk.Rows(t, 1), d.dv.Rows(t, 1)};
      const QkvOutputs<T> out{alone.q.span().Rows(0, 1), alone.k.span().Rows(0, 1),
                              alone.v.span().Rows(0, 1)};
      PackedGradients<T> gradients = problem.Gradients(alone);
      gradients.dpacked = gradients.dpacked.Rows(0, 1);
      ASSERT_TRUE(PrepareQkv<T>(problem.op(), in, out, pool).ok());
      ASSERT_TRUE(PrepareQkvBackward<T>(problem.op(), in, d, gradients, pool).ok());
      ExpectSameBytes(out.q.row(0), all.q.span().row(t), out.q.width);
      ExpectSameBytes(out.k.row(0), all.k.span().row(t), out.k.width);
      ExpectSameBytes(out.v.row(0), all.v.span().row(t), out.v.width);
      ExpectSameBytes(gradients.dpacked.row(0), all.dpacked.span().row(t), in.packed.width);
    }
  }
}

TEST(Rows, AreIndependent) {
  CheckRowsAreIndependent<float>();
  CheckRowsAreIndependent<BFloat16>();
}

// Tensor-parallel ranks that hold 2^k groups each: their local trees, then a tree over ranks.
TEST(WeightGradients, AddUpOverShardsOfGroups) {
  ThreadPool pool(2);
  constexpr std::int64_t kGroups = 8, kDim = 64;
  const Problem<float> problem({.tokens = 150, .kv_heads = kGroups, .group_size = 3});
  const QkvInputs<float> in = problem.inputs();
  const QkvGradients<float> d = problem.gradients();
  const Results<float> whole = problem.RunCpu(pool);
  std::vector<float> expected(kDim);
  ReduceHeadNormGradient<float>(whole.dq_weight.span(), absl::MakeSpan(expected));

  for (const std::int64_t ranks : {2, 4, 8}) {
    const std::int64_t groups = kGroups / ranks;
    std::vector<float> of_ranks(ranks * kDim), dk(groups * kDim), dq(groups * kDim);
    const RowSpan<float> rank_rows(of_ranks.data(), ranks, kDim);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      QkvPreparation op = problem.op();
      op.layout = *PackedQkv::Interleaved(
          {.query_heads = 3 * groups, .kv_heads = groups, .head_dim = kDim});
      // A contiguous shard of groups: columns of every matrix.
      const auto columns = [&](RowSpan<const float> rows) {
        const std::int64_t width = rows.width / ranks;
        return RowSpan<const float>(rows.data + rank * width, rows.rows, width, rows.stride);
      };
      QkvInputs<float> shard = in;
      shard.packed = columns(in.packed);
      std::vector<float> dpacked(shard.packed.size());
      ASSERT_TRUE(
          PrepareQkvBackward<float>(
              op, shard, {columns(d.dq), columns(d.dk), columns(d.dv)},
              {RowSpan<float>(dpacked.data(), 150, shard.packed.width),
               RowSpan<float>(dq.data(), groups, kDim), RowSpan<float>(dk.data(), groups, kDim)},
              pool)
              .ok());
      ReduceHeadNormGradient<float>(RowSpan<const float>(dq.data(), groups, kDim),
                                    absl::MakeSpan(rank_rows.row(rank), kDim));
    }
    std::vector<float> total(kDim);
    ReduceHeadNormGradient<float>(rank_rows, absl::MakeSpan(total));
    EXPECT_EQ(std::memcmp(total.data(), expected.data(), kDim * sizeof(float)), 0) << ranks;
  }
}

TEST(WeightGradients, NoTokensGivePositiveZero) {
  ThreadPool pool(1);
  const Problem<BFloat16> problem({.tokens = 0});
  const Results<BFloat16> r = problem.RunCpu(pool);
  for (const auto* weight : {&r.dq_weight, &r.dk_weight}) {
    for (std::int64_t g = 0; g < 2; ++g) {
      for (std::int64_t i = 0; i < 64; ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(weight->span().row(g)[i]), 0u);
      }
    }
  }
}

TEST(ReduceHeadNormGradient, IsAnAdjacentPairTree) {
  const std::vector<float> p = {1e8f, 1.0f, -1e8f, 1.0f, 3.0f};
  std::vector<float> out(1);
  ReduceHeadNormGradient<float>(RowSpan<const float>(p.data(), 5, 1), absl::MakeSpan(out));
  EXPECT_EQ(out[0], ((1e8f + 1.0f) + (-1e8f + 1.0f)) + ((3.0f + 0.0f) + (0.0f + 0.0f)));
  ReduceHeadNormGradient<float>(RowSpan<const float>(p.data(), 0, 1), absl::MakeSpan(out));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out[0]), 0u);
}

// Address space without memory behind it.
class SparseRows {
 public:
  SparseRows(std::int64_t rows, std::int64_t width, std::int64_t stride)
      : bytes_((rows * stride + width) * sizeof(BFloat16)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        span_(static_cast<BFloat16*>(memory_), rows, width, stride) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~SparseRows() { munmap(memory_, bytes_); }
  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;
  RowSpan<BFloat16> span() const { return span_; }

  void CopyFrom(RowSpan<const BFloat16> from) {
    for (std::int64_t t = 0; t < from.rows; ++t) {
      std::memcpy(span_.row(t), from.row(t), from.width * sizeof(BFloat16));
    }
  }
  bool Equals(RowSpan<const BFloat16> other) const {
    for (std::int64_t t = 0; t < other.rows; ++t) {
      if (std::memcmp(span_.row(t), other.row(t), other.width * sizeof(BFloat16)) != 0)
        return false;
    }
    return true;
  }

 private:
  std::size_t bytes_;
  void* memory_;
  RowSpan<BFloat16> span_;
};

TEST(LargeMatrices, RowsLieRightPastTwoToThe31Elements) {
  constexpr std::int64_t kTokens = 3, kStride = (std::int64_t{1} << 30) + 64;
  ThreadPool pool(2);
  for (const std::int64_t dim : {64, 12}) {
    const Problem<BFloat16> problem({.tokens = kTokens, .head_dim = dim});
    const Results<BFloat16> dense = problem.RunReference();
    const QkvInputs<BFloat16> in = problem.inputs();
    const QkvGradients<BFloat16> d = problem.gradients();
    const auto sparse = [&](RowSpan<const BFloat16> like) {
      return std::make_unique<SparseRows>(kTokens, like.width, kStride);
    };
    const auto packed = sparse(in.packed), dq = sparse(d.dq), dk = sparse(d.dk), dv = sparse(d.dv);
    packed->CopyFrom(in.packed);
    dq->CopyFrom(d.dq);
    dk->CopyFrom(d.dk);
    dv->CopyFrom(d.dv);
    QkvInputs<BFloat16> sparse_in = in;
    sparse_in.packed = packed->span();
    const QkvGradients<BFloat16> sparse_d{dq->span(), dk->span(), dv->span()};
    for (const char* which : {"cpu", "reference", "unfused"}) {
      const auto q = sparse(d.dq), k = sparse(d.dk), v = sparse(d.dv), dpacked = sparse(in.packed);
      const QkvOutputs<BFloat16> out{q->span(), k->span(), v->span()};
      PackedGradients<BFloat16> gradients = problem.Gradients(problem.MakeResults());
      const Results<BFloat16> weights = problem.MakeResults();
      gradients = problem.Gradients(weights);
      gradients.dpacked = dpacked->span();
      const QkvPreparation& op = problem.op();
      if (which[0] == 'c') {
        ASSERT_TRUE(PrepareQkv<BFloat16>(op, sparse_in, out, pool).ok());
        ASSERT_TRUE(PrepareQkvBackward<BFloat16>(op, sparse_in, sparse_d, gradients, pool).ok());
      } else if (which[0] == 'r') {
        ASSERT_TRUE(PrepareQkvReference<BFloat16>(op, sparse_in, out).ok());
        ASSERT_TRUE(PrepareQkvBackwardReference<BFloat16>(op, sparse_in, sparse_d, gradients).ok());
      } else {
        PrepareQkvUnfused<BFloat16>(op, sparse_in, out, pool);
        PrepareQkvBackwardUnfused<BFloat16>(op, sparse_in, sparse_d, gradients, pool);
      }
      EXPECT_TRUE(q->Equals(dense.q.span())) << which;
      EXPECT_TRUE(k->Equals(dense.k.span())) << which;
      EXPECT_TRUE(v->Equals(dense.v.span())) << which;
      EXPECT_TRUE(dpacked->Equals(dense.dpacked.span())) << which;
    }
  }
}

}  // namespace
}  // namespace headwise
