#include "kernels/newton_schulz/transfer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/base/check.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/common/transpose.h"

namespace headwise::newton_schulz {
namespace {

// The longest run of a row that is on its way at a time: what a Gram chunk needs.
constexpr std::int64_t kRun = kChunkColumns;

std::uint32_t LargestMagnitude(const float* x, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  }
  return largest;
}

// to[16 r + i] = from[i * from_stride + r] for r < rows; the i-th of 16 columns each time.
void Transpose(const float* from, std::int64_t from_stride, std::int64_t rows, float* to,
               std::int64_t to_stride) {
  F16 tile[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) tile[i] = Load(from + i * from_stride);
  Transpose16x16(tile);
  if (rows == kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) Store(to + i * to_stride, tile[i]);
  } else {
    for (int i = 0; i < rows; ++i) Store(to + i * to_stride, tile[i]);
  }
}

// The block's rows are X's rows.
std::uint32_t LoadWide(BlockAccess& block, std::int64_t d, std::int64_t begin, std::int64_t end,
                       const Panels& x) {
  ThreadScratch scratch;
  float* const rows = scratch.Take<float>(kLanes * kRun);
  std::uint32_t largest = 0;
  for (std::int64_t p = 0; p < x.count; ++p) {
    const std::int64_t used = std::min<std::int64_t>(kLanes, d - p * kLanes);
    std::memset(rows + used * kRun, 0, (kLanes - used) * kRun * sizeof(float));
    for (std::int64_t r = 0; r < used; ++r) {
      block.Load(p * kLanes + r, begin, end - begin, rows + r * kRun);
      largest = std::max(largest, LargestMagnitude(rows + r * kRun, end - begin));
    }
    for (std::int64_t c = 0; c < end - begin; c += kLanes) {
      Transpose(rows + c, kRun, std::min<std::int64_t>(kLanes, end - begin - c),
                x.panel(p) + (begin + c) * kLanes, kLanes);
    }
  }
  return largest;
}

// The block's rows are X's columns.
std::uint32_t LoadTall(BlockAccess& block, std::int64_t d, std::int64_t begin, std::int64_t end,
                       const Panels& x) {
  ThreadScratch scratch;
  float* const row = scratch.Take<float>(x.count * kLanes);
  std::fill(row + d, row + x.count * kLanes, 0.0f);
  std::uint32_t largest = 0;
  for (std::int64_t c = begin; c < end; ++c) {
    block.Load(c, 0, d, row);
    largest = std::max(largest, LargestMagnitude(row, d));
    for (std::int64_t p = 0; p < x.count; ++p) {
      Store(x.panel(p) + c * kLanes, headwise::Load(row + p * kLanes));
    }
  }
  return largest;
}

void StoreWide(const Panels& strip, std::int64_t d, std::int64_t begin, std::int64_t end,
               BlockAccess& block) {
  const std::int64_t padded = PanelsFor(end - begin) * kLanes;
  ThreadScratch scratch;
  float* const rows = scratch.Take<float>(kLanes * padded);
  for (std::int64_t p = 0; p < strip.count; ++p) {
    for (std::int64_t c = 0; c < padded; c += kLanes) {
      Transpose(strip.panel(p) + c * kLanes, kLanes, kLanes, rows + c, padded);
    }
    for (std::int64_t r = 0; r < std::min<std::int64_t>(kLanes, d - p * kLanes); ++r) {
      block.Store(p * kLanes + r, begin, end - begin, rows + r * padded);
    }
  }
}

void StoreTall(const Panels& strip, std::int64_t d, std::int64_t begin, std::int64_t end,
               BlockAccess& block) {
  ThreadScratch scratch;
  float* const row = scratch.Take<float>(strip.count * kLanes);
  for (std::int64_t c = begin; c < end; ++c) {
    for (std::int64_t p = 0; p < strip.count; ++p) {
      headwise::Store(row + p * kLanes, headwise::Load(strip.panel(p) + (c - begin) * kLanes));
    }
    block.Store(c, 0, d, row);
  }
}

}  // namespace

BlockShape::BlockShape(const BlockAccess& block)
    : d(std::min(block.rows(), block.cols())),
      n(std::max(block.rows(), block.cols())),
      transposed(block.rows() > block.cols() ||
                 (block.rows() == block.cols() && block.transposed_storage())) {}

std::uint32_t LoadColumns(BlockAccess& block, const BlockShape& shape, std::int64_t begin,
                          std::int64_t end, const Panels& x) {
  HW_CHECK_LE(end - begin, kRun);
  return (shape.transposed ? LoadTall : LoadWide)(block, shape.d, begin, end, x);
}

void StoreColumns(const Panels& strip, const BlockShape& shape, std::int64_t begin,
                  std::int64_t end, BlockAccess& block) {
  (shape.transposed ? StoreTall : StoreWide)(strip, shape.d, begin, end, block);
}

void StoreZeros(BlockAccess& block) {
  const std::vector<float> zeros(block.cols());
  for (std::int64_t row = 0; row < block.rows(); ++row) {
    block.Store(row, 0, block.cols(), zeros.data());
  }
}

}  // namespace headwise::newton_schulz
