// What a row's bits depend on: that row. And sums of weight gradients across tensor-parallel shards,
// positions out of range, offsets past 2^31 elements.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/emulated_problem.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/reference.h"

namespace headwise {
namespace {

template <typename T>
class EmulatedRows : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedRows, StorageTypes);

template <typename T>
std::vector<T> Copy(const T* from, std::int64_t n) {
  return std::vector<T>(from, from + n);
}

// Each token alone, or from another first token on, in either mapping.
TYPED_TEST(EmulatedRows, DoNotDependOnTheBatch) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 40}) {
    for (const std::int64_t misalign : {0, 1}) {
      const Problem<T> problem(
          {.tokens = 70, .kv_heads = 3, .head_dim = head_dim, .misalign = misalign});
      const auto all = RunEmulated(problem, {}, false);
      ASSERT_TRUE(all.ok()) << all.status();
      const std::int64_t q_width = all->q.span().width, kv_width = all->k.span().width;
      for (const std::int64_t begin : {0, 1, 33, 69}) {
        for (const std::int64_t count : {1, 2, 37}) {
          if (begin + count > 70) continue;
          QkvInputs<T> in = problem.inputs();
          in.packed = RowSpan<const T>(in.packed.row(begin), count, in.packed.width);
          in.positions = in.positions.subspan(begin, count);
          std::vector<T> q(count * q_width), k(count * kv_width), v(count * kv_width);
          const QkvOutputs<T> out = {RowSpan<T>(q.data(), count, q_width),
                                     RowSpan<T>(k.data(), count, kv_width),
                                     RowSpan<T>(v.data(), count, kv_width)};
          LaunchMemory memory(problem.op(), in.positions, count, false);
          ASSERT_TRUE(cuda_emulated::PrepareQkv<T>(problem.op(), in, out, memory.launch()).ok());
          EXPECT_EQ(q, Copy(all->q.span().row(begin), count * q_width)) << begin << " " << count;
          EXPECT_EQ(k, Copy(all->k.span().row(begin), count * kv_width)) << begin << " " << count;
          EXPECT_EQ(v, Copy(all->v.span().row(begin), count * kv_width)) << begin << " " << count;
        }
      }
    }
  }
}

// Kv groups [begin, begin + count) of a problem as a tensor-parallel rank has them: their columns.
template <typename T>
struct Shard {
  QkvPreparation op;
  QkvInputs<T> in;
  QkvGradients<T> d;
};
template <typename T>
Shard<T> MakeShard(const Problem<T>& problem, std::int64_t begin, std::int64_t count) {
  const PackedQkv& layout = problem.op().layout;
  const std::int64_t dim = layout.head_dim(), size = layout.group_size();
  const auto columns = [&](auto rows, std::int64_t heads_per_group) {
    rows.data += begin * heads_per_group * dim;
    rows.width = count * heads_per_group * dim;
    return rows;
  };
  Shard<T> shard = {problem.op(), problem.inputs(), problem.gradients()};
  shard.op.layout =
      *PackedQkv::Interleaved({.query_heads = count * size, .kv_heads = count, .head_dim = dim});
  shard.in.packed = columns(shard.in.packed, size + 2);
  shard.d = {columns(shard.d.dq, size), columns(shard.d.dk, 1), columns(shard.d.dv, 1)};
  return shard;
}

// [D] of q and of k, one after the other.
template <typename T>
std::vector<float> WeightGradient(const Shard<T>& shard) {
  const std::int64_t dim = shard.op.layout.head_dim(), groups = shard.op.layout.kv_heads();
  const std::int64_t tokens = shard.in.packed.rows, width = shard.op.layout.row_width();
  std::vector<T> dpacked(tokens * width);
  std::vector<float> dq(groups * dim), dk(groups * dim), out(2 * dim);
  LaunchMemory memory(shard.op, shard.in.positions, tokens, false);
  const PackedGradients<T> gradients = {RowSpan<T>(dpacked.data(), tokens, width),
                                        RowSpan<float>(dq.data(), groups, dim),
                                        RowSpan<float>(dk.data(), groups, dim)};
  absl::Status status =
      cuda_emulated::PrepareQkvBackward<T>(shard.op, shard.in, shard.d, gradients, memory.launch());
  EXPECT_TRUE(status.ok()) << status;
  const absl::Span<float> both = absl::MakeSpan(out);
  for (int i = 0; i < 2; ++i) {
    status = cuda_emulated::ReduceHeadNormGradient(
        RowSpan<const float>(i == 0 ? dq.data() : dk.data(), groups, dim),
        both.subspan(i * dim, dim), nullptr);
    EXPECT_TRUE(status.ok()) << status;
  }
  return out;
}

// Gradients of 1 to 16 contiguous shards, summed by the adjacent-pair tree over ranks, are those of
// one device.
TYPED_TEST(EmulatedRows, WeightGradientsOfShardsAddUp) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 24}) {
    const Problem<T> problem(
        {.tokens = 130, .kv_heads = 16, .group_size = 3, .head_dim = head_dim});
    const std::vector<float> expected = WeightGradient(MakeShard(problem, 0, 16));

    const Results<T> reference = problem.RunReference();
    std::vector<float> from_reference(2 * head_dim);
    const absl::Span<float> both = absl::MakeSpan(from_reference);
    ReduceHeadNormGradient<float>(reference.dq_weight.span(), both.subspan(0, head_dim));
    ReduceHeadNormGradient<float>(reference.dk_weight.span(), both.subspan(head_dim, head_dim));
    EXPECT_EQ(expected, from_reference);

    for (const std::int64_t ranks : {2, 4, 8, 16}) {
      std::vector<std::vector<float>> sums;
      for (std::int64_t r = 0; r < ranks; ++r) {
        sums.push_back(WeightGradient(MakeShard(problem, r * 16 / ranks, 16 / ranks)));
      }
      for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
        for (std::size_t i = 0; i < sums.size() / 2; ++i) {
          std::vector<float> sum = sums[2 * i];
          for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += sums[2 * i + 1][j];
          sums[i] = sum;
        }
      }
      EXPECT_EQ(sums[0], expected) << ranks << " ranks";
    }
  }
}

// Heads of a group beyond one block's: the tree goes on over rounds of eight.
TYPED_TEST(EmulatedRows, LargeGroups) {
  using T = TypeParam;
  for (const std::int64_t group_size : {9, 16, 17, 71}) {
    for (const std::int64_t head_dim : {64, 20}) {
      for (const Values values : {Values::kGaussian, Values::kSignedZeros}) {
        const Problem<T> problem({.tokens = 5,
                                  .kv_heads = 1,
                                  .group_size = group_size,
                                  .head_dim = head_dim,
                                  .values = values});
        const auto actual = RunEmulated(problem, {}, false);
        ASSERT_TRUE(actual.ok()) << actual.status();
        EXPECT_EQ(Difference(*actual, problem.RunReference()), "") << group_size << " " << head_dim;
      }
    }
  }
}

// A token without a table row: nothing is written for it, the smallest is kept, other tokens are
// what they would be, and it has no part in the weight gradients.
TYPED_TEST(EmulatedRows, DevicePositionsOutOfRange) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = 150, .head_dim = head_dim});
    const Results<T> expected = problem.RunReference();
    std::vector<std::int64_t> positions(problem.inputs().positions.begin(),
                                        problem.inputs().positions.end());
    const std::int64_t bad[] = {140, 77, 90};
    positions[140] = -1;
    positions[77] = problem.op().rotary->length();
    positions[90] = std::int64_t{1} << 62;
    QkvInputs<T> in = problem.inputs();
    in.positions = {};

    const Results<T> actual = problem.MakeResults();
    LaunchMemory memory(problem.op(), positions, 150, /*device_positions=*/true);
    ASSERT_TRUE(
        cuda_emulated::PrepareQkv<T>(problem.op(), in, Problem<T>::Outputs(actual), memory.launch())
            .ok());
    EXPECT_EQ(memory.first_bad_token(), 77);
    LaunchMemory again(problem.op(), positions, 150, /*device_positions=*/true);
    ASSERT_TRUE(cuda_emulated::PrepareQkvBackward<T>(problem.op(), in, problem.gradients(),
                                                     problem.Gradients(actual), again.launch())
                    .ok());
    EXPECT_EQ(again.first_bad_token(), 77);

    const Results<T> untouched = problem.MakeResults();
    for (std::int64_t t = 0; t < 150; ++t) {
      const bool is_bad = std::find(std::begin(bad), std::end(bad), t) != std::end(bad);
      const Results<T>& want = is_bad ? untouched : expected;
      const auto same = [&](const GuardedRows<T>& a, const GuardedRows<T>& b) {
        return std::equal(a.span().row(t), a.span().row(t) + a.span().width, b.span().row(t),
                          [](T x, T y) { return std::memcmp(&x, &y, sizeof(T)) == 0; });
      };
      EXPECT_TRUE(same(actual.q, want.q) && same(actual.k, want.k) && same(actual.v, want.v) &&
                  same(actual.dpacked, want.dpacked))
          << t;
    }

    // Leaving a token out is, but for the sign of a zero, giving it a gradient of zero.
    std::vector<std::vector<T>> zeroed;
    const auto zero_bad = [&](RowSpan<const T> rows) {
      std::vector<T>& values = zeroed.emplace_back(rows.rows * rows.width);
      for (std::int64_t t = 0; t < rows.rows; ++t) {
        if (std::find(std::begin(bad), std::end(bad), t) != std::end(bad)) continue;
        std::copy_n(rows.row(t), rows.width, values.data() + t * rows.width);
      }
      return RowSpan<const T>(values.data(), rows.rows, rows.width);
    };
    const QkvGradients<T> d = problem.gradients();
    const QkvGradients<T> without = {zero_bad(d.dq), zero_bad(d.dk), zero_bad(d.dv)};
    const Results<T> left_out = problem.MakeResults();
    ASSERT_TRUE(PrepareQkvBackwardReference<T>(problem.op(), problem.inputs(), without,
                                               problem.Gradients(left_out))
                    .ok());
    for (std::int64_t g = 0; g < problem.op().layout.kv_heads(); ++g) {
      for (std::int64_t i = 0; i < head_dim; ++i) {
        EXPECT_EQ(actual.dq_weight.span().row(g)[i], left_out.dq_weight.span().row(g)[i]);
        EXPECT_EQ(actual.dk_weight.span().row(g)[i], left_out.dk_weight.span().row(g)[i]);
      }
    }
  }
}

// Rows so far apart that offsets pass 2^31 elements, in memory that is only reserved.
TYPED_TEST(EmulatedRows, OffsetsPast31Bits) {
  using T = TypeParam;
  constexpr std::int64_t kRows = 3, kStride = (std::int64_t{1} << 31) + 64;
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = kRows, .head_dim = head_dim});
    const Results<T> expected = problem.RunReference();
    const std::size_t bytes = static_cast<std::size_t>(kRows * kStride) * sizeof(T);
    std::vector<void*> mapped;
    const auto far = [&](std::int64_t width) {
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      EXPECT_NE(memory, MAP_FAILED);
      mapped.push_back(memory);
      return RowSpan<T>(static_cast<T*>(memory), kRows, width, kStride);
    };
    const auto copy = [](auto from, RowSpan<T> to) {
      for (std::int64_t t = 0; t < from.rows; ++t) {
        std::copy_n(from.row(t), from.width, to.row(t));
      }
    };
    QkvInputs<T> in = problem.inputs();
    QkvGradients<T> d = problem.gradients();
    const RowSpan<T> packed = far(in.packed.width), dq = far(d.dq.width), dk = far(d.dk.width),
                     dv = far(d.dv.width), q = far(d.dq.width), k = far(d.dk.width),
                     v = far(d.dv.width), dpacked = far(in.packed.width);
    copy(in.packed, packed);
    copy(d.dq, dq);
    copy(d.dk, dk);
    copy(d.dv, dv);
    in.packed = {packed.data, kRows, packed.width, kStride};
    d = {{dq.data, kRows, dq.width, kStride},
         {dk.data, kRows, dk.width, kStride},
         {dv.data, kRows, dv.width, kStride}};
    LaunchMemory memory(problem.op(), in.positions, kRows, false);
    ASSERT_TRUE(cuda_emulated::PrepareQkv<T>(problem.op(), in, {q, k, v}, memory.launch()).ok());
    const Results<T> near = problem.MakeResults();
    PackedGradients<T> gradients = problem.Gradients(near);
    gradients.dpacked = dpacked;
    ASSERT_TRUE(
        cuda_emulated::PrepareQkvBackward<T>(problem.op(), in, d, gradients, memory.launch()).ok());
    copy(q, near.q.span());
    copy(k, near.k.span());
    copy(v, near.v.span());
    copy(dpacked, near.dpacked.span());
    EXPECT_EQ(Difference(near, expected), "") << head_dim;
    for (void* memory_to_free : mapped) munmap(memory_to_free, bytes);
  }
}

}  // namespace
}  // namespace headwise
