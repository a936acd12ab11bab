// Cache and register tiling of the contract product, in the manner of BLIS (doi:10.1145/2764454).
//
//   task       a tile of c, at most kTileRows x kTileCols, summed in scratch in the compute type
//   chunk      kChunk consecutive p: the tile's rows of a and columns of b, packed and widened
//   register   kRows x kCols elements of c: columns in vector lanes, one broadcast of a per row
//
// A lane is one element's chain: it is loaded from the scratch, extended by the chunk's p in
// ascending order, and stored. Loads and stores are exact, lanes and rows are independent, so every
// element is the one serial chain of the contract.
#include "kernels/gemm/contract_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/common/transpose.h"

namespace headwise::gemm {
namespace {

constexpr std::int64_t kChunk = 256;
constexpr std::int64_t kTileRows = 192;
constexpr std::int64_t kTileCols = 384;

// The register tile for compute type C: as many chains as the registers hold (32 of 512 bits, or 16
// of 256 bits).
template <typename C>
struct RegisterTile {
  static constexpr int kVectors = Vec16<C>::kParts == 1 ? 2 : 1;  // vectors of 16 columns
  static constexpr int kRows = Vec16<C>::kParts == 1 ? 12 : 6;
  static constexpr int kCols = kVectors * kLanes;
};

// a [depth][R] and b [depth][kCols] packed; acc R rows of kCols with a stride.
template <typename C, int R>
void MultiplyTile(const C* a, const C* b, std::int64_t depth, C* acc, std::int64_t acc_stride) {
  using V = Vec16<C>;
  constexpr int kVectors = RegisterTile<C>::kVectors;
  V sum[R][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Load(acc + r * acc_stride + v * kLanes);
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    V column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = Load(b + (p * kVectors + v) * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V row = a[p * R + r];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(row, column[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(acc + r * acc_stride + v * kLanes, sum[r][v]);
  }
}

template <typename C>
using TileFunction = void (*)(const C*, const C*, std::int64_t, C*, std::int64_t);

// kTileFunctions<C>[r - 1] multiplies r rows.
template <typename C>
constexpr auto kTileFunctions = []<int... r>(std::integer_sequence<int, r...>) {
  return std::array<TileFunction<C>, sizeof...(r)>{MultiplyTile<C, r + 1>...};
}
(std::make_integer_sequence<int, RegisterTile<C>::kRows>{});

// Packs lines i of an operand, count x depth, as [groups of lines][depth][group], in the compute
// type. A line is a row of a or a column of b; its elements lie `depth_stride` apart. The last
// group is narrower, or with `padded` filled with zeros or lines that nobody looks at. `readable`
// >= count lines are in memory. Writes up to kLanes elements past the end.
template <typename T>
void Pack(const T* data, std::int64_t line_stride, std::int64_t depth_stride, std::int64_t count,
          std::int64_t readable, std::int64_t depth, std::int64_t group, bool padded,
          Compute<T>* packed) {
  for (std::int64_t i = 0; i < count; i += group) {
    const std::int64_t lines = std::min(group, count - i);
    const std::int64_t stored = padded ? group : lines;
    const T* from = data + i * line_stride;
    if (depth_stride == 1) {
      PackTransposed(from, line_stride, lines, depth, stored, packed);
    } else {
      PackRows(from, depth_stride, readable - i, depth, stored, packed);
    }
    packed += depth * stored;
  }
}

template <typename TIn, typename TOut>
class Multiplier {
 public:
  using C = Compute<TIn>;
  using Tile = RegisterTile<C>;

  explicit Multiplier(const Product<TIn, TOut>& product) : product_(product) {}

  // The tile of c that starts at (row, col).
  void Run(std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) const {
    const std::int64_t stride = RoundUp(cols, Tile::kCols);
    ThreadScratch scratch;
    C* acc = scratch.Take<C>(rows * stride);
    C* packed_a = scratch.Take<C>(rows * kChunk + kLanes);
    C* packed_b = scratch.Take<C>(stride * kChunk + kLanes);
    std::fill(acc, acc + rows * stride, C{0});
    for (std::int64_t p = 0; p < product_.k; p += kChunk) {
      const std::int64_t depth = std::min(kChunk, product_.k - p);
      const auto& a = product_.a;
      const auto& b = product_.b;
      Pack(a.at(row, p), a.row_stride, a.col_stride, rows, product_.m - row, depth, Tile::kRows,
           false, packed_a);
      Pack(b.at(p, col), b.col_stride, b.row_stride, cols, product_.n - col, depth, Tile::kCols,
           true, packed_b);
      for (std::int64_t j = 0; j < cols; j += Tile::kCols) {
        for (std::int64_t i = 0; i < rows; i += Tile::kRows) {
          const std::int64_t height = std::min<std::int64_t>(Tile::kRows, rows - i);
          kTileFunctions<C>[height - 1](packed_a + i * depth, packed_b + j * depth, depth,
                                        acc + i * stride + j, stride);
        }
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      Finish(acc + i * stride, col, cols, product_.c.row(row + i) + col);
    }
  }

 private:
  static std::int64_t RoundUp(std::int64_t x, std::int64_t multiple) {
    return (x + multiple - 1) / multiple * multiple;
  }

  // Bias, rounding and the store of one row of the tile.
  void Finish(const C* acc, std::int64_t col, std::int64_t cols, TOut* out) const {
    const C* bias = product_.bias == nullptr ? nullptr : product_.bias + col;
    std::int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) {
      Vec16<C> y = Load(acc + j);
      if (bias != nullptr) y += Load(bias + j);
      StoreNarrow(out + j, y);
    }
    for (; j < cols; ++j) out[j] = Narrow<TOut>(bias != nullptr ? acc[j] + bias[j] : acc[j]);
  }

  const Product<TIn, TOut>& product_;
};

}  // namespace

template <typename TIn, typename TOut>
void ContractProduct(const Product<TIn, TOut>& product, ThreadPool& pool) {
  // The tiling shows in no bit, so it may look at the number of threads: about four tasks each, if
  // the product is large.
  std::int64_t tile_rows = kTileRows, tile_cols = kTileCols;
  const auto tasks = [&] {
    return ((product.m + tile_rows - 1) / tile_rows) * ((product.n + tile_cols - 1) / tile_cols);
  };
  const std::int64_t enough = pool.num_threads() == 1 ? 1 : 4 * pool.num_threads();
  while (tasks() < enough && tile_cols > 48) tile_cols /= 2;
  while (tasks() < enough && tile_rows > 48) tile_rows /= 2;
  const std::int64_t columns = (product.n + tile_cols - 1) / tile_cols;
  const Multiplier<TIn, TOut> multiplier(product);
  pool.ParallelFor(tasks(), [&](std::int64_t task) {
    const std::int64_t row = task / columns * tile_rows, col = task % columns * tile_cols;
    multiplier.Run(row, col, std::min(tile_rows, product.m - row),
                   std::min(tile_cols, product.n - col));
  });
}

template void ContractProduct(const Product<float, float>&, ThreadPool&);
template void ContractProduct(const Product<BFloat16, BFloat16>&, ThreadPool&);
template void ContractProduct(const Product<BFloat16, float>&, ThreadPool&);
template void ContractProduct(const Product<double, double>&, ThreadPool&);

}  // namespace headwise::gemm
