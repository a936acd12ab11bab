#include "kernels/prepare_qkv/test_shapes.h"

#include <cstdint>
#include <optional>

namespace headwise {
namespace {

constexpr HeadNorm kNorms[] = {HeadNorm::kNone, HeadNorm::kScaleless, HeadNorm::kWeighted,
                               HeadNorm::kGainCentered};
constexpr Rounding kRoundings[] = {Rounding::kAfterWeight, Rounding::kBeforeWeight,
                                   Rounding::kOnlyAtEnd};
constexpr std::optional<RotaryPairing> kPairings[] = {RotaryPairing::kHalf,
                                                      RotaryPairing::kInterleaved, std::nullopt};
constexpr Packing kPackings[] = {Packing::kInterleavedPerKvGroup, Packing::kSectioned};

}  // namespace

std::vector<Shape> ShapesOfEveryChoice() {
  std::vector<Shape> shapes;
  for (const std::int64_t head_dim : {64, 128, 22}) {
    for (const HeadNorm norm : kNorms) {
      for (const Rounding rounding : kRoundings) {
        for (const auto& pairing : kPairings) {
          for (const Packing packing : kPackings) {
            for (const float scale : {1.0f, 0.3f}) {
              shapes.push_back({.head_dim = head_dim,
                                .packing = packing,
                                .norm = norm,
                                .rounding = rounding,
                                .query_scale = scale,
                                .pairing = pairing});
            }
          }
        }
      }
    }
  }
  return shapes;
}

std::vector<Shape> ShapesOfEveryKindOfValue() {
  std::vector<Shape> shapes;
  std::uint64_t seed = 0;
  for (const Values values : kAllValues) {
    for (const std::int64_t head_dim : {64, 128, 20}) {
      for (const HeadNorm norm : kNorms) {
        for (const Rounding rounding : kRoundings) {
          for (const auto& pairing : kPairings) {
            shapes.push_back({.tokens = 2,
                              .head_dim = head_dim,
                              .norm = norm,
                              .rounding = rounding,
                              .query_scale = seed % 2 == 0 ? 1.0f : 3.7f,
                              .epsilon = seed % 5 == 0 ? 0.0f : 1e-6f,
                              .pairing = pairing,
                              .values = values,
                              .seed = seed + 1});
            ++seed;
          }
        }
      }
    }
  }
  return shapes;
}

std::vector<Shape> ShapesOfEveryHeadDim() {
  std::vector<Shape> shapes;
  for (std::int64_t head_dim = 2; head_dim <= kMaxHeadDim; head_dim += 2) {
    const std::int64_t i = head_dim / 2;
    shapes.push_back({.tokens = 1 + i % 3,
                      .kv_heads = 1,
                      .group_size = 1 + i % 2,
                      .head_dim = head_dim,
                      .packing = kPackings[i / 3 % 2],
                      .norm = kNorms[i / 2 % 4],
                      .rounding = kRoundings[i % 3],
                      .query_scale = i % 5 == 0 ? 0.125f : 1.0f,
                      .pairing = kPairings[i / 3 % 3],
                      .seed = static_cast<std::uint64_t>(i)});
  }
  return shapes;
}

std::vector<Shape> ShapesOfEveryTokenCountAndGroupSize() {
  std::vector<Shape> shapes;
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 255, 256, 257}) {
    for (const std::int64_t group_size : {1, 3, 5, 6, 7, 8, 12}) {
      const std::uint64_t i = shapes.size();
      shapes.push_back({.tokens = tokens,
                        .kv_heads = 1 + static_cast<std::int64_t>(i % 3),
                        .group_size = group_size,
                        .head_dim = i % 4 == 0   ? 10
                                    : i % 4 == 1 ? 128
                                                 : 64,
                        .packing = kPackings[i % 2],
                        .norm = i % 5 == 0 ? HeadNorm::kGainCentered : HeadNorm::kWeighted,
                        .rounding = kRoundings[i % 3],
                        .pairing = kPairings[i % 2],
                        .seed = i});
    }
  }
  return shapes;
}

std::vector<Shape> ShapesOfPartialRotary() {
  std::vector<Shape> shapes;
  for (const std::int64_t head_dim : {20, 64, 128}) {
    for (std::int64_t rotary_dim = 0; rotary_dim <= head_dim; rotary_dim += head_dim / 10 / 2 * 2) {
      for (const auto& pairing : {kPairings[0], kPairings[1]}) {
        shapes.push_back({.head_dim = head_dim, .pairing = pairing, .rotary_dim = rotary_dim});
      }
    }
    for (const std::int64_t rotary_dim : {32, 64, 96}) {  // whole vectors
      if (rotary_dim > head_dim) continue;
      for (const HeadNorm norm : kNorms) {
        for (const auto& pairing : {kPairings[0], kPairings[1]}) {
          shapes.push_back({.head_dim = head_dim,
                            .norm = norm,
                            .query_scale = 0.7f,
                            .pairing = pairing,
                            .rotary_dim = rotary_dim});
        }
      }
    }
  }
  return shapes;
}

std::vector<Shape> ShapesOfStridedRows() {
  std::vector<Shape> shapes;
  for (const std::int64_t row_gap : {0, 1, 8, 32, 61}) {
    for (const std::int64_t misalign : {0, 1, 2, 3, 8}) {
      for (const std::int64_t head_dim : {64, 128, 6}) {
        shapes.push_back({.tokens = 67,
                          .head_dim = head_dim,
                          .row_gap = row_gap,
                          .misalign = misalign,
                          .write_v = (row_gap + misalign) % 3 != 0});
      }
    }
  }
  return shapes;
}

}  // namespace headwise
