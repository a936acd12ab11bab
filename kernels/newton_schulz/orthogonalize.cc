#include "kernels/newton_schulz/orthogonalize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/newton_schulz/apply.h"
#include "kernels/newton_schulz/chain.h"
#include "kernels/newton_schulz/gram.h"
#include "kernels/newton_schulz/panels.h"
#include "kernels/newton_schulz/transfer.h"

namespace headwise::newton_schulz {
namespace {

// A block that costs more is shared by all threads.
constexpr double kSharedBlockOperations = 0.5e9;

double Operations(const BlockAccess& block) {
  const BlockShape shape(block);
  const double d = static_cast<double>(shape.d), n = static_cast<double>(shape.n);
  return 4 * d * d * n + 34 * d * d * d;
}

// X <- X times the power of two that brings its largest magnitude into [1, 2).
void ScaleToOne(float largest, ForEach for_each, const Panels& x, std::int64_t n) {
  const int exponent = -std::ilogb(largest);
  const int first = std::min(exponent, 127);  // 2^149, for subnormal blocks, is not a float
  const F16 f1(std::ldexp(1.0f, first)), f2(std::ldexp(1.0f, exponent - first));
  for_each(x.count, [&](std::int64_t p) {
    float* const panel = x.panel(p);
    for (std::int64_t c = 0; c < n; ++c) {
      Store(panel + c * kLanes, Load(panel + c * kLanes) * f1 * f2);
    }
  });
}

// One block, from loading to storing.
class Solver {
 public:
  // If `cooperative`, for_each uses many threads: then phases are run one after another over the
  // whole block, else each chunk's Gram partial is formed while the chunk is in the cache.
  Solver(const NewtonSchulzCoefficients& coefficients, BlockAccess& block, ForEach for_each,
         bool cooperative)
      : coefficients_(coefficients),
        block_(block),
        shape_(block),
        for_each_(for_each),
        cooperative_(cooperative),
        chunks_((shape_.n + kChunkColumns - 1) / kChunkColumns),
        strips_((shape_.n + kStripColumns - 1) / kStripColumns),
        // Rows beyond n: the last strip reads them.
        x_{nullptr, PanelsFor(shape_.d), (strips_ * kStripColumns + 1) * kLanes},
        chain_(shape_.d, scratch_.Take<float>(Chain::ScratchFloats(shape_.d))) {
    x_.data = scratch_.Take<float>(x_.count * x_.stride);
    for (std::int64_t p = 0; p < x_.count; ++p) {
      std::fill(x_.panel(p) + shape_.n * kLanes, x_.panel(p) + x_.stride, 0.0f);
    }
  }

  void Run() {
    const std::uint32_t largest_bits = cooperative_ ? Load() : LoadWithGram();
    if (largest_bits == 0) {
      StoreZeros(block_);
      return;
    }
    const float largest = std::bit_cast<float>(largest_bits);
    const bool scale = std::isfinite(largest) && !(0x1p-40f <= largest && largest < 0x1p40f);
    if (scale) ScaleToOne(largest, for_each_, x_, shape_.n);
    if (scale || cooperative_) Gram();
    float s = chain_.NormalizeTrace(for_each_);

    const auto steps = absl::MakeConstSpan(coefficients_.steps);
    std::size_t begin = 0;
    for (const int after : coefficients_.restarts_after) {
      const Panels qs = chain_.Segment(steps.subspan(begin, after - begin), s, for_each_);
      for_each_(strips_, [&](std::int64_t i) { ReplaceStrip(qs, i); });
      Gram();
      s = 1.0f;
      begin = after;
    }
    const Panels qs = chain_.Segment(steps.subspan(begin), s, for_each_);
    for_each_(strips_, [&](std::int64_t i) { StoreStrip(qs, i); });
  }

 private:
  std::int64_t ChunkEnd(std::int64_t chunk) const {
    return std::min((chunk + 1) * kChunkColumns, shape_.n);
  }
  std::int64_t StripEnd(std::int64_t strip) const {
    return std::min((strip + 1) * kStripColumns, shape_.n);
  }

  // Returns the largest magnitude's bits.
  std::uint32_t Load() {
    std::vector<std::uint32_t> largest(chunks_);
    for_each_(chunks_, [&](std::int64_t chunk) {
      largest[chunk] = LoadColumns(block_, shape_, chunk * kChunkColumns, ChunkEnd(chunk), x_);
    });
    return *std::max_element(largest.begin(), largest.end());
  }

  // The same, and R = X X^T meanwhile.
  std::uint32_t LoadWithGram() {
    ThreadScratch scratch;
    std::vector<GramPiece> pieces;
    for (const Piece& piece : chain_.pieces()) {
      const std::int64_t floats = GramPiece::ScratchFloats(piece, shape_.n);
      pieces.emplace_back(piece, shape_.n, scratch.Take<float>(floats));
    }
    std::uint32_t largest = 0;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      largest = std::max(largest,
                         LoadColumns(block_, shape_, chunk * kChunkColumns, ChunkEnd(chunk), x_));
      for (GramPiece& piece : pieces) piece.AddChunk(x_, chunk);
    }
    for (GramPiece& piece : pieces) piece.Finish(chain_.r());
    return largest;
  }

  // R = X X^T.
  void Gram() {
    const std::vector<Piece>& pieces = chain_.pieces();
    for_each_(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
      ThreadScratch scratch;
      GramPiece piece(pieces[i], shape_.n,
                      scratch.Take<float>(GramPiece::ScratchFloats(pieces[i], shape_.n)));
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) piece.AddChunk(x_, chunk);
      piece.Finish(chain_.r());
    });
  }

  // (Q s) X, one strip: calls f(strip).
  template <typename F>
  void WithStrip(const Panels& qs, std::int64_t strip, const F& f) {
    ThreadScratch scratch;
    Panels out{nullptr, x_.count, kStripColumns * kLanes};
    out.data = scratch.Take<float>(out.count * out.stride);
    ApplyStrip(qs, x_, shape_.d, strip * kStripColumns, out);
    f(out);
  }

  // X <- (Q s) X.
  void ReplaceStrip(const Panels& qs, std::int64_t strip) {
    WithStrip(qs, strip, [&](const Panels& out) {
      const std::int64_t begin = strip * kStripColumns;
      for (std::int64_t p = 0; p < x_.count; ++p) {
        std::memcpy(x_.panel(p) + begin * kLanes, out.panel(p),
                    (StripEnd(strip) - begin) * kLanes * sizeof(float));
      }
    });
  }

  // O = (Q s) X.
  void StoreStrip(const Panels& qs, std::int64_t strip) {
    WithStrip(qs, strip, [&](const Panels& out) {
      StoreColumns(out, shape_, strip * kStripColumns, StripEnd(strip), block_);
    });
  }

  const NewtonSchulzCoefficients& coefficients_;
  BlockAccess& block_;
  const BlockShape shape_;
  const ForEach for_each_;
  const bool cooperative_;
  const std::int64_t chunks_, strips_;
  ThreadScratch scratch_;
  Panels x_;  // [n, d] and what the last strip reads beyond
  Chain chain_;
};

}  // namespace

void Orthogonalize(const NewtonSchulzCoefficients& coefficients,
                   absl::Span<BlockAccess* const> blocks, ThreadPool& pool) {
  // The dearest first, so that no thread is left with one at the end.
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> operations;
  operations.reserve(blocks.size());
  for (const BlockAccess* block : blocks) operations.push_back(Operations(*block));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return operations[a] > operations[b]; });

  std::size_t shared = 0;
  for (; shared < order.size() && operations[order[shared]] > kSharedBlockOperations; ++shared) {
    const auto all_threads = [&](std::int64_t n, absl::FunctionRef<void(std::int64_t)> task) {
      pool.ParallelFor(n, task);
    };
    Solver(coefficients, *blocks[order[shared]], all_threads, /*cooperative=*/true).Run();
  }
  pool.ParallelFor(static_cast<std::int64_t>(order.size() - shared), [&](std::int64_t i) {
    const auto this_thread = [](std::int64_t n, absl::FunctionRef<void(std::int64_t)> task) {
      for (std::int64_t j = 0; j < n; ++j) task(j);
    };
    Solver(coefficients, *blocks[order[shared + i]], this_thread, /*cooperative=*/false).Run();
  });
}

}  // namespace headwise::newton_schulz
