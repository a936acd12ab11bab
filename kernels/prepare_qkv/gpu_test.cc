// On a GPU the CUDA kernels return the reference's bits, forward and backward, in both mappings;
// write nothing else; and do so in a graph, row by row, and past 2^31 elements. The unfused kernels
// that the benchmark compares with return the same bits.
//
// gpu_harness_test runs a part of this on the emulation, so that the test itself is tested where
// there is no GPU.
#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "gtest/gtest.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "kernels/prepare_qkv/gpu_problem.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/prepare_qkv/reference.h"
#include "kernels/prepare_qkv/test_problem.h"
#include "kernels/prepare_qkv/test_shapes.h"

namespace headwise {
namespace {

#define HW_ASSERT_OK(expression)                             \
  do {                                                       \
    const absl::Status hw_status = (expression);             \
    ASSERT_TRUE(hw_status.ok()) << #expression << hw_status; \
  } while (false)

using StorageTypes = testing::Types<float, BFloat16>;

template <typename T>
class GpuBits : public testing::Test {
 protected:
  // Positions in host and in device memory take turns. An error ends it: after one, CUDA answers
  // every call with it.
  void Check(const std::vector<Shape>& shapes) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      SCOPED_TRACE(testing::Message() << shapes[i]);
      const Problem<T> problem(shapes[i]);
      const absl::StatusOr<Results<T>> results = RunOnGpu(problem, i % 2 == 1);
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ(Difference(*results, problem.RunReference()), "");
    }
  }
};
TYPED_TEST_SUITE(GpuBits, StorageTypes);

TYPED_TEST(GpuBits, EveryChoice) { this->Check(ShapesOfEveryChoice()); }
TYPED_TEST(GpuBits, EveryKindOfValue) { this->Check(ShapesOfEveryKindOfValue()); }
TYPED_TEST(GpuBits, EveryHeadDim) { this->Check(ShapesOfEveryHeadDim()); }
TYPED_TEST(GpuBits, EveryTokenCountAndGroupSize) {
  this->Check(ShapesOfEveryTokenCountAndGroupSize());
}
TYPED_TEST(GpuBits, PartialRotary) { this->Check(ShapesOfPartialRotary()); }
TYPED_TEST(GpuBits, StridedRowsAnyAlignmentAndNoV) { this->Check(ShapesOfStridedRows()); }

// Blocks on every multiprocessor, several times over. The CPU path's bits are the reference's.
TYPED_TEST(GpuBits, MuseGeometry) {
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<TypeParam> problem({.tokens = 2048,
                                      .kv_heads = 16,
                                      .group_size = 8,
                                      .head_dim = head_dim,
                                      .norm = HeadNorm::kGainCentered});
    const absl::StatusOr<Results<TypeParam>> results = RunOnGpu(problem, true);
    ASSERT_TRUE(results.ok()) << results.status();
    ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    EXPECT_EQ(Difference(*results, problem.RunCpu(pool)), "");
  }
}

// A head's bits depend on its token alone, however many tokens a launch has.
TYPED_TEST(GpuBits, RowsDoNotDependOnTheLaunch) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = 70, .head_dim = head_dim});
    absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    for (const auto& [first, size] : {std::pair{0, 1}, {1, 3}, {4, 60}, {64, 6}}) {
      const auto slice = [begin = first, count = size](auto rows) {
        return rows.Rows(begin, count);
      };
      QkvInputs<T> in = gpu->inputs();
      in.packed = slice(in.packed);
      QkvLaunch launch = gpu->launch(nullptr);
      launch.positions += first;
      QkvOutputs<T> out = gpu->outputs();
      out = {slice(out.q), slice(out.k), slice(out.v)};
      HW_ASSERT_OK(cuda::PrepareQkv<T>(gpu->op(), in, out, launch));
      QkvGradients<T> d = gpu->gradients();
      d = {slice(d.dq), slice(d.dk), slice(d.dv)};
      PackedGradients<T> gradients = gpu->packed_gradients();
      gradients.dpacked = slice(gradients.dpacked);
      HW_ASSERT_OK(cuda::PrepareQkvBackward<T>(gpu->op(), in, d, gradients, launch));
    }
    absl::StatusOr<Results<T>> results = gpu->Download();
    ASSERT_TRUE(results.ok()) << results.status();
    const Results<T> expected = problem.RunReference();
    results->dq_weight = expected.dq_weight;  // those of the last slice
    results->dk_weight = expected.dk_weight;
    EXPECT_EQ(Difference(*results, expected), "");
  }
}

// A copy of a matrix with some rows zero, or as if never written.
enum class Rest { kZero, kCanaries };
template <typename T>
GuardedRows<T> Without(RowSpan<const T> rows, const std::vector<std::int64_t>& left_out,
                       Rest rest) {
  GuardedRows<T> copy(rows.rows, rows.width, 0, 0);
  for (std::int64_t t = 0; t < rows.rows; ++t) {
    if (std::find(left_out.begin(), left_out.end(), t) == left_out.end()) {
      std::copy_n(rows.row(t), rows.width, copy.span().row(t));
    } else if (rest == Rest::kZero) {
      std::fill_n(copy.span().row(t), rows.width, T{});
    }
  }
  return copy;
}

// Nothing is written for tokens without a table row, the first is named, and the weight gradients
// leave them out.
TYPED_TEST(GpuBits, DevicePositionsOutOfTheTable) {
  using T = TypeParam;
  const std::vector<std::int64_t> bad = {149, 77, 90};
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = 150, .head_dim = head_dim});
    std::vector<std::int64_t> positions(problem.inputs().positions.begin(),
                                        problem.inputs().positions.end());
    positions[149] = -1;
    positions[77] = problem.op().rotary->length();
    positions[90] = std::int64_t{1} << 62;

    absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    HW_ASSERT_OK(gpu->SetPositions(positions));
    HW_ASSERT_OK(
        cuda::PrepareQkv<T>(gpu->op(), gpu->inputs(), gpu->outputs(), gpu->launch(nullptr)));
    EXPECT_EQ(*gpu->FirstBadToken(), 77);
    HW_ASSERT_OK(cuda::PrepareQkvBackward<T>(gpu->op(), gpu->inputs(), gpu->gradients(),
                                             gpu->packed_gradients(), gpu->launch(nullptr)));
    EXPECT_EQ(*gpu->FirstBadToken(), 77);
    const absl::StatusOr<Results<T>> results = gpu->Download();
    ASSERT_TRUE(results.ok()) << results.status();

    // But for the sign of a zero, which no sum from +0 keeps, leaving a token out is giving it a
    // gradient of zero.
    Results<T> expected = problem.RunReference();
    const QkvGradients<T> d = problem.gradients();
    const GuardedRows<T> dq = Without(d.dq, bad, Rest::kZero), dk = Without(d.dk, bad, Rest::kZero),
                         dv = Without(d.dv, bad, Rest::kZero);
    HW_ASSERT_OK(PrepareQkvBackwardReference<T>(problem.op(), problem.inputs(),
                                                {dq.span(), dk.span(), dv.span()},
                                                problem.Gradients(expected)));
    for (GuardedRows<T>* rows : {&expected.q, &expected.k, &expected.v, &expected.dpacked}) {
      *rows = Without<T>(rows->span(), bad, Rest::kCanaries);
    }
    EXPECT_EQ(Difference(*results, expected), "");
  }
}

// Captured once, replayed with other inputs in the same memory.
TYPED_TEST(GpuBits, AGraphReplaysWithOtherInputs) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 40}) {
    Shape shape{.tokens = 130, .head_dim = head_dim};
    const Problem<T> first(shape);
    shape.seed = 2;
    const Problem<T> second(shape);
    absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(first);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    const absl::StatusOr<CudaStream> stream = CudaStream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status();
    const absl::StatusOr<CudaGraph> graph =
        CudaGraph::Capture(*stream, [&](CUstream_st* s) -> absl::Status {
          const QkvLaunch launch = gpu->launch(s);
          absl::Status forward =
              cuda::PrepareQkv<T>(gpu->op(), gpu->inputs(), gpu->outputs(), launch);
          if (!forward.ok()) return forward;
          return cuda::PrepareQkvBackward<T>(gpu->op(), gpu->inputs(), gpu->gradients(),
                                             gpu->packed_gradients(), launch);
        });
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_LE(graph->kernels(), 3);
    EXPECT_TRUE(Untouched(*gpu->Download())) << "the capture ran";
    for (const Problem<T>* problem : {&first, &second, &first}) {
      HW_ASSERT_OK(gpu->Reset(*problem));
      HW_ASSERT_OK(graph->Launch(*stream));
      HW_ASSERT_OK(stream->Synchronize());
      const absl::StatusOr<Results<T>> results = gpu->Download();
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ(Difference(*results, problem->RunReference()), "");
    }
  }
}

// [D] from [G, D].
TYPED_TEST(GpuBits, ReducedWeightGradient) {
  for (const std::int64_t groups : {1, 3, 16}) {
    const Problem<TypeParam> problem({.tokens = 5, .kv_heads = groups});
    const Results<TypeParam> results = problem.RunReference();
    const RowSpan<float> per_group = results.dq_weight.span();
    std::vector<float> expected(per_group.width), actual(per_group.width);
    ReduceHeadNormGradient<float>(per_group, absl::MakeSpan(expected));

    const absl::StatusOr<DeviceMirror> from = DeviceMirror::Of(per_group);
    ASSERT_TRUE(from.ok()) << from.status();
    const absl::StatusOr<DeviceMirror> to = DeviceMirror::Of(absl::MakeSpan(actual));
    ASSERT_TRUE(to.ok()) << to.status();
    HW_ASSERT_OK(cuda::ReduceHeadNormGradient(from->Translate(per_group),
                                              to->Translate(absl::MakeSpan(actual)), nullptr));
    HW_ASSERT_OK(to->Download(actual.data()));
    EXPECT_EQ(actual, expected);
  }
}

// --- More than 2^31 elements ---------------------------------------------------------------------

template <typename T>
class GpuLarge : public testing::Test {
 protected:
  // Whether the GPU has so many elements free; the test is skipped, and says so, if not.
  bool Fits(std::int64_t elements) {
    bytes_ = elements * std::int64_t{sizeof(T)};
    const absl::StatusOr<CudaDevice> device = CurrentCudaDevice();
    return device.ok() && device->free_memory > bytes_ + (std::int64_t{256} << 20);
  }
  std::int64_t bytes_ = 0;
};
TYPED_TEST_SUITE(GpuLarge, StorageTypes);

template <typename T>
absl::Status CopyRows(RowSpan<const T> host, RowSpan<T> device) {
  for (std::int64_t t = 0; t < host.rows; ++t) {
    absl::Status status =
        CopyToDevice(device.row(t), host.row(t), host.width * std::int64_t{sizeof(T)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}
template <typename T>
absl::Status CopyRowsBack(RowSpan<T> device, RowSpan<T> host) {
  for (std::int64_t t = 0; t < host.rows; ++t) {
    absl::Status status =
        CopyToHost(host.row(t), device.row(t), host.width * std::int64_t{sizeof(T)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Three rows so far apart that the last starts past 2^31 elements; all matrices are columns of one.
TYPED_TEST(GpuLarge, StridedRows) {
  using T = TypeParam;
  constexpr std::int64_t kRows = 3, kStride = (std::int64_t{1} << 30) + 64;
  if (!this->Fits(2 * kStride + (1 << 16))) {
    GTEST_SKIP() << "the GPU has no " << (this->bytes_ >> 20) << " MiB free";
  }
  const absl::StatusOr<DeviceArray<T>> memory =
      DeviceArray<T>::Allocate((kRows - 1) * kStride + (1 << 16));
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = kRows, .head_dim = head_dim});
    absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    const Results<T> results = *gpu->Download();
    std::int64_t column = 0;
    const auto far = [&](std::int64_t width) {
      const RowSpan<T> rows(memory->data() + column, kRows, width, kStride);
      column += (width + 63) / 64 * 64;
      return rows;
    };
    QkvInputs<T> in = gpu->inputs();
    const QkvGradients<T> d = problem.gradients();
    const RowSpan<T> packed = far(in.packed.width), dq = far(d.dq.width), dk = far(d.dk.width),
                     dv = far(d.dv.width), q = far(d.dq.width), k = far(d.dk.width),
                     v = far(d.dv.width), dpacked = far(in.packed.width);
    HW_ASSERT_OK(CopyRows(problem.inputs().packed, packed));
    HW_ASSERT_OK(CopyRows(d.dq, dq));
    HW_ASSERT_OK(CopyRows(d.dk, dk));
    HW_ASSERT_OK(CopyRows(d.dv, dv));
    in.packed = packed;
    HW_ASSERT_OK(cuda::PrepareQkv<T>(gpu->op(), in, {q, k, v}, gpu->launch(nullptr)));
    PackedGradients<T> gradients = gpu->packed_gradients();
    gradients.dpacked = dpacked;
    HW_ASSERT_OK(
        cuda::PrepareQkvBackward<T>(gpu->op(), in, {dq, dk, dv}, gradients, gpu->launch(nullptr)));
    absl::StatusOr<Results<T>> near = gpu->Download();
    ASSERT_TRUE(near.ok()) << near.status();
    HW_ASSERT_OK(CopyRowsBack(q, near->q.span()));
    HW_ASSERT_OK(CopyRowsBack(k, near->k.span()));
    HW_ASSERT_OK(CopyRowsBack(v, near->v.span()));
    HW_ASSERT_OK(CopyRowsBack(dpacked, near->dpacked.span()));
    EXPECT_EQ(Difference(*near, problem.RunReference()), "") << head_dim;
  }
}

// So many tokens that a packed row starts past 2^31 elements. Only the last are looked at.
TYPED_TEST(GpuLarge, ManyTokens) {
  using T = TypeParam;
  const Shape shape{
      .tokens = 70, .kv_heads = 16, .group_size = 8, .norm = HeadNorm::kScaleless, .seed = 5};
  const Problem<T> problem(shape);  // the last rows
  const std::int64_t width = problem.op().layout.row_width();
  const std::int64_t tokens = (std::int64_t{1} << 31) / width + shape.tokens;
  if (!this->Fits(3 * tokens * width)) {
    GTEST_SKIP() << "the GPU has no " << (this->bytes_ >> 20) << " MiB free";
  }
  absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const absl::StatusOr<DeviceArray<T>> packed = DeviceArray<T>::Allocate(tokens * width);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const absl::StatusOr<DeviceArray<T>> separate = DeviceArray<T>::Allocate(tokens * width);
  ASSERT_TRUE(separate.ok()) << separate.status();
  const absl::StatusOr<DeviceArray<T>> dpacked = DeviceArray<T>::Allocate(tokens * width);
  ASSERT_TRUE(dpacked.ok()) << dpacked.status();
  const absl::StatusOr<DeviceArray<std::int64_t>> positions =
      DeviceArray<std::int64_t>::Allocate(tokens);
  ASSERT_TRUE(positions.ok()) << positions.status();

  const std::int64_t first = tokens - shape.tokens,
                     bytes = tokens * width * std::int64_t{sizeof(T)};
  HW_ASSERT_OK(FillDevice(packed->data(), 0x3c, bytes));
  HW_ASSERT_OK(FillDevice(separate->data(), 0x3c, bytes));
  HW_ASSERT_OK(FillDevice(positions->data(), 0, tokens * 8));
  const absl::Span<const std::int64_t> last = problem.inputs().positions;
  HW_ASSERT_OK(CopyToDevice(positions->data() + first, last.data(), shape.tokens * 8));
  const RowSpan<T> in_rows(packed->data(), tokens, width);
  HW_ASSERT_OK(CopyRows(problem.inputs().packed, in_rows.Rows(first, shape.tokens)));

  // q, k and v one behind the other; then the gradients in their place.
  const QkvGradients<T> d = problem.gradients();
  const RowSpan<T> q(separate->data(), tokens, d.dq.width),
      k(q.data + tokens * q.width, tokens, d.dk.width),
      v(k.data + tokens * k.width, tokens, k.width);
  const RowSpan<T> out_rows(dpacked->data(), tokens, width);
  QkvInputs<T> in = gpu->inputs();
  in.packed = in_rows;
  QkvLaunch launch = gpu->launch(nullptr);
  launch.positions = positions->data();
  HW_ASSERT_OK(cuda::PrepareQkv<T>(gpu->op(), in, {q, k, v}, launch));
  Results<T> results = problem.MakeResults();
  const auto end = [&](RowSpan<T> rows) { return rows.Rows(first, shape.tokens); };
  HW_ASSERT_OK(CopyRowsBack(end(q), results.q.span()));
  HW_ASSERT_OK(CopyRowsBack(end(k), results.k.span()));
  HW_ASSERT_OK(CopyRowsBack(end(v), results.v.span()));
  HW_ASSERT_OK(CopyRows(d.dq, end(q)));
  HW_ASSERT_OK(CopyRows(d.dk, end(k)));
  HW_ASSERT_OK(CopyRows(d.dv, end(v)));
  HW_ASSERT_OK(cuda::PrepareQkvBackward<T>(gpu->op(), in, {q, k, v}, {out_rows}, launch));
  HW_ASSERT_OK(CopyRowsBack(end(out_rows), results.dpacked.span()));
  EXPECT_EQ(Difference(results, problem.RunReference()), "");
  EXPECT_EQ(*gpu->FirstBadToken(), -1);
}

// --- Unfused -------------------------------------------------------------------------------------

template <typename T>
class GpuUnfused : public testing::Test {};
TYPED_TEST_SUITE(GpuUnfused, StorageTypes);

TYPED_TEST(GpuUnfused, ReturnsTheSameBits) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t tokens : {5, 300, 2048}) {
      for (const HeadNorm norm : {HeadNorm::kScaleless, HeadNorm::kGainCentered}) {
        for (const bool rope : {true, false}) {
          const Problem<T> problem(
              {.tokens = tokens,
               .group_size = 8,
               .head_dim = head_dim,
               .norm = norm,
               .query_scale = norm == HeadNorm::kScaleless ? 5.4730065f : 1.0f,
               .pairing = rope ? std::optional(RotaryPairing::kHalf) : std::nullopt});
          absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
          ASSERT_TRUE(gpu.ok()) << gpu.status();
          const auto tensors = DeviceArray<T>::Allocate(UnfusedElements(problem.op(), tokens));
          ASSERT_TRUE(tensors.ok()) << tensors.status();
          const auto partials = DeviceArray<float>::Allocate(UnfusedPartials(problem.op(), tokens));
          ASSERT_TRUE(partials.ok()) << partials.status();
          const UnfusedWorkspace<T> workspace =
              MakeUnfusedWorkspace(problem.op(), tokens, tensors->data(), partials->data());
          HW_ASSERT_OK(cuda::PrepareQkvUnfused<T>(gpu->op(), gpu->inputs(), gpu->outputs(),
                                                  workspace, gpu->launch(nullptr)));
          HW_ASSERT_OK(cuda::PrepareQkvBackwardUnfused<T>(gpu->op(), gpu->inputs(),
                                                          gpu->gradients(), gpu->packed_gradients(),
                                                          workspace, gpu->launch(nullptr)));
          const absl::StatusOr<Results<T>> results = gpu->Download();
          ASSERT_TRUE(results.ok()) << results.status();
          const absl::StatusOr<Results<T>> fused = RunOnGpu(problem, true);
          ASSERT_TRUE(fused.ok()) << fused.status();
          EXPECT_EQ(Difference(*results, *fused), "") << head_dim << " " << tokens << " " << rope;
        }
      }
    }
  }
}

// --- What compute-sanitizer runs: little, for it is slow -----------------------------------------

template <typename T>
class GpuForSanitizers : public GpuBits<T> {};
TYPED_TEST_SUITE(GpuForSanitizers, StorageTypes);

TYPED_TEST(GpuForSanitizers, BothMappings) {
  std::vector<Shape> shapes;
  for (const std::int64_t head_dim : {64, 128, 40, 510}) {
    for (const auto& pairing :
         {std::optional(RotaryPairing::kHalf), std::optional(RotaryPairing::kInterleaved),
          std::optional<RotaryPairing>()}) {
      for (const HeadNorm norm : {HeadNorm::kNone, HeadNorm::kGainCentered}) {
        shapes.push_back({.tokens = 67,
                          .group_size = 5,
                          .head_dim = head_dim,
                          .norm = norm,
                          .pairing = pairing});
      }
    }
  }
  this->Check(shapes);
}

// Outputs and scratch that nobody has written before the kernels do: initcheck sees whether they
// read any of it, or leave any of it.
TYPED_TEST(GpuForSanitizers, UninitialisedMemory) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {64, 40}) {
    const Problem<T> problem({.tokens = 130, .head_dim = head_dim});
    const absl::StatusOr<GpuProblem<T>> gpu = GpuProblem<T>::Create(problem);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    Results<T> results = problem.MakeResults();
    std::vector<DeviceMemory> memory;
    const auto fresh = [&]<typename U>(RowSpan<U> like) {
      absl::StatusOr<DeviceMemory> fresh_memory =
          DeviceMemory::Allocate(like.size() * std::int64_t{sizeof(U)});
      EXPECT_TRUE(fresh_memory.ok()) << fresh_memory.status();
      memory.push_back(*std::move(fresh_memory));
      return RowSpan<U>(reinterpret_cast<U*>(memory.back().data()), like.rows, like.width);
    };
    const RowSpan<T> q = fresh(results.q.span()), k = fresh(results.k.span()),
                     v = fresh(results.v.span()), dpacked = fresh(results.dpacked.span());
    const RowSpan<float> dq_weight = fresh(results.dq_weight.span()),
                         dk_weight = fresh(results.dk_weight.span());
    const RowSpan<float> scratch = fresh(RowSpan<float>(
        nullptr, 1, WeightGradientScratch(problem.op(), problem.inputs().packed.rows)));
    QkvLaunch launch = gpu->launch(nullptr);
    launch.weight_gradient_scratch = scratch.data;
    HW_ASSERT_OK(cuda::PrepareQkv<T>(gpu->op(), gpu->inputs(), {q, k, v}, launch));
    HW_ASSERT_OK(cuda::PrepareQkvBackward<T>(gpu->op(), gpu->inputs(), gpu->gradients(),
                                             {dpacked, dq_weight, dk_weight}, launch));
    HW_ASSERT_OK(CopyRowsBack(q, results.q.span()));
    HW_ASSERT_OK(CopyRowsBack(k, results.k.span()));
    HW_ASSERT_OK(CopyRowsBack(v, results.v.span()));
    HW_ASSERT_OK(CopyRowsBack(dpacked, results.dpacked.span()));
    HW_ASSERT_OK(CopyRowsBack(dq_weight, results.dq_weight.span()));
    HW_ASSERT_OK(CopyRowsBack(dk_weight, results.dk_weight.span()));
    EXPECT_EQ(Difference(results, problem.RunReference()), "") << head_dim;
  }
}

}  // namespace
}  // namespace headwise
