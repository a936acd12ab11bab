// attention on a GPU has the bits of the CPU path: head dims, groups, windows, documents, decoding,
// sinks, special values; and finds segments that lie outside their rows.
#include "kernels/attention/attention.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/attention/cuda.h"
#include "kernels/attention/test_problem.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

template <typename T>
void RunOnGpu(AttentionProblem<T>& p, std::uint64_t expected_fault) {
  OnDevice device;
  const auto segments = device.In(absl::MakeConstSpan(p.segments));
  const RowSpan<const T> q = device.In(p.q), k = device.In(p.k), v = device.In(p.v),
                         d_o = device.In(p.d_o);
  const auto sinks = RowOf(device.In(p.sinks));
  const RowSpan<T> o = device.Out(p.o), dq = device.Out(p.dq), dk = device.Out(p.dk),
                   dv = device.Out(p.dv);
  const RowSpan<float> log_sum_exp = device.Out(p.log_sum_exp);
  const auto d_sinks = RowOf(device.Out(p.d_sinks));
  AttentionLaunch launch = {.first_bad_segment = device.Fault(),
                            .scratch = device.Scratch<float>(
                                AttentionBackwardScratch(p.op, p.q.rows(), p.sinks.width() > 0))};
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    launch.stream = stream;
    HW_RETURN_IF_ERROR(
        Kernels<T>().AttentionForward(p.op, segments, q, k, v, sinks, o, log_sum_exp, launch));
    return Kernels<T>().AttentionBackward(p.op, segments, q, k, v, sinks, o, log_sum_exp, d_o, dq,
                                          dk, dv, d_sinks, launch);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  EXPECT_EQ(device.fault(), expected_fault);
}

template <typename T>
void ExpectCpuBits(const AttentionProblem<T>& problem, const std::string& what) {
  AttentionProblem<T> expected = problem, actual = problem;
  expected.Forward(CpuThreads());
  expected.Backward(CpuThreads());
  RunOnGpu(actual, kNone);
  actual.ExpectSameOutputs(expected, what);
}

struct Case {
  std::vector<std::int64_t> documents;
  std::int64_t query_heads, kv_heads, head_dim, window;
  Layout layout = Layout::kContiguous;
  bool sinks = false;
};

template <typename T>
AttentionProblem<T> ProblemOf(const Case& c) {
  const std::int64_t tokens =
      std::accumulate(c.documents.begin(), c.documents.end(), std::int64_t{0});
  AttentionProblem<T> problem(HeadsOf(c.query_heads, c.kv_heads, c.head_dim, c.window),
                              Documents(c.documents), tokens, tokens, c.layout);
  if (c.sinks) problem.AddSinks();
  return problem;
}

void ExpectCpuBits(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string what = std::to_string(c.query_heads) + "/" + std::to_string(c.kv_heads) +
                             " heads of " + std::to_string(c.head_dim) + ", window " +
                             std::to_string(c.window);
    ExpectCpuBits(ProblemOf<float>(c), what);
    ExpectCpuBits(ProblemOf<BFloat16>(c), what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Some rows of one input are zeros, subnormals, infinities and NaN.
template <typename T>
void ExpectCpuBitsOnSpecialValues(const Case& c) {
  for (const int which : {0, 1, 2, 3}) {
    AttentionProblem<T> problem = ProblemOf<T>(c);
    TestMatrix<T>* const m[] = {&problem.q, &problem.k, &problem.v, &problem.d_o};
    TestMatrix<T> specials(1, m[which]->width());
    FillWithSpecials(specials, 7);
    for (const std::int64_t row : {m[which]->rows() / 3, m[which]->rows() - 2}) {
      for (std::int64_t i = 0; i < specials.width(); ++i) {
        m[which]->at(row, i) = specials.at(0, i);
      }
    }
    ExpectCpuBits(problem, "specials in input " + std::to_string(which));
  }
}

TEST(GpuAttention, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{{18, 3}, 2, 1, 10, 15, Layout::kStrided, /*sinks=*/true}, {{33}, 4, 2, 16, 0}});
}

TEST(GpuAttention, ForSanitizersHasTheCpusBitsOnSpecialValues) {
  ExpectCpuBitsOnSpecialValues<float>({{21, 9}, 2, 1, 10, 12, Layout::kStrided});
  ExpectCpuBitsOnSpecialValues<BFloat16>({{21, 9}, 2, 1, 10, 12, Layout::kStrided});
}

template <typename T>
void ExpectBadSegmentsLeftOut() {
  for (const int what : {0, 1, 2}) {
    AttentionProblem<T> expected = ProblemOf<T>({{20, 30, 10}, 2, 1, 16, 0, Layout::kStrided});
    AttentionProblem<T> actual = expected;
    expected.segments.erase(expected.segments.begin() + 1);
    AttentionSegment& bad = actual.segments[1];
    if (what == 0) bad.num_queries = 41;
    if (what == 1) bad.key_begin = -1;
    if (what == 2) bad.query_begin = std::numeric_limits<std::int64_t>::max();
    expected.Forward(CpuThreads());
    expected.Backward(CpuThreads());
    RunOnGpu(actual, /*expected_fault=*/1);
    actual.ExpectSameOutputs(expected, "segment " + std::to_string(what));
  }
}

TEST(GpuAttention, ForSanitizersSegmentsOutsideTheirRowsAreLeftOutAndReported) {
  ExpectBadSegmentsLeftOut<float>();
  ExpectBadSegmentsLeftOut<BFloat16>();
}

TEST(GpuAttention, HasTheCpusBits) {
  ExpectCpuBits({{{513}, 8, 2, 64, 0},
                 {{257, 1, 300}, 12, 4, 128, 0},
                 {{515}, 5, 1, 80, 129, Layout::kStrided},
                 {{130}, 2, 2, 256, 0},
                 {{257, 256}, 16, 2, 64, 128, Layout::kAligned, /*sinks=*/true}});
}

TEST(GpuAttention, HasTheCpusBitsOnSpecialValues) {
  ExpectCpuBitsOnSpecialValues<float>({{290, 130}, 8, 2, 64, 133, Layout::kStrided});
  ExpectCpuBitsOnSpecialValues<BFloat16>({{290, 130}, 8, 2, 64, 133, Layout::kStrided});
}

// Rows of a batch that decodes, each with a cache of its own length.
template <typename T>
void ExpectCpuBitsOfDecoding() {
  std::vector<AttentionSegment> segments;
  std::int64_t keys = 0;
  for (const std::int64_t length : {1, 64, 700, 1025}) {
    segments.push_back({.query_begin = static_cast<std::int64_t>(segments.size()),
                        .num_queries = 1,
                        .query_position = length - 1,
                        .key_begin = keys,
                        .num_keys = length});
    keys += length + 3;
  }
  ExpectCpuBits(AttentionProblem<T>(HeadsOf(16, 2, 64, 512), segments, 5, keys), "decoding");
}

TEST(GpuAttention, HasTheCpusBitsOfDecoding) {
  ExpectCpuBitsOfDecoding<float>();
  ExpectCpuBitsOfDecoding<BFloat16>();
}

TEST(GpuLargeAttention, HasTheCpusBits) {
  ExpectCpuBits({{{2049}, 16, 2, 64, 0}, {{1500, 549}, 16, 2, 64, 1024}});
}

}  // namespace
}  // namespace headwise
