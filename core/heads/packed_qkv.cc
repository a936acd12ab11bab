#include "core/heads/packed_qkv.h"

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace headwise {
namespace {

std::string Describe(const HeadGeometry& g) {
  return absl::StrCat("query_heads=", g.query_heads, ", kv_heads=", g.kv_heads,
                      ", head_dim=", g.head_dim);
}

}  // namespace

const char* Name(Packing packing) {
  switch (packing) {
    case Packing::kInterleavedPerKvGroup:
      return "interleaved_per_kv_group";
    case Packing::kSectioned:
      return "sectioned";
  }
  return "?";
}

const char* Name(QkvRole role) {
  switch (role) {
    case QkvRole::kQuery:
      return "query";
    case QkvRole::kKey:
      return "key";
    case QkvRole::kValue:
      return "value";
  }
  return "?";
}

absl::StatusOr<PackedQkv> PackedQkv::Create(Packing packing, HeadGeometry g) {
  if (g.query_heads <= 0 || g.kv_heads <= 0 || g.head_dim <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head geometry must be positive, found ", Describe(g)));
  }
  if (g.query_heads % g.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_heads must divide query_heads, found ", Describe(g),
                     "; every kv group serves query_heads / kv_heads query heads"));
  }
  // kv_heads <= query_heads here, so slots <= 3 * query_heads.
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (g.query_heads > kMax / 3 || g.head_dim > kMax / (g.query_heads + 2 * g.kv_heads)) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed row width overflows 64 bits: ", Describe(g)));
  }
  return PackedQkv(packing, g);
}

absl::StatusOr<PackedQkv> PackedQkv::Interleaved(HeadGeometry geometry) {
  return Create(Packing::kInterleavedPerKvGroup, geometry);
}

absl::StatusOr<PackedQkv> PackedQkv::Sectioned(HeadGeometry geometry) {
  return Create(Packing::kSectioned, geometry);
}

std::int64_t PackedQkv::QuerySlot(std::int64_t h) const {
  HW_CHECK(h >= 0 && h < query_heads()) << "query head " << h << " of " << query_heads();
  if (packing_ == Packing::kSectioned) return h;
  return h / group_size() * (group_size() + 2) + h % group_size();
}

std::int64_t PackedQkv::KeySlot(std::int64_t g) const {
  HW_CHECK(g >= 0 && g < kv_heads()) << "kv group " << g << " of " << kv_heads();
  if (packing_ == Packing::kSectioned) return query_heads() + g;
  return g * (group_size() + 2) + group_size();
}

std::int64_t PackedQkv::ValueSlot(std::int64_t g) const {
  HW_CHECK(g >= 0 && g < kv_heads()) << "kv group " << g << " of " << kv_heads();
  if (packing_ == Packing::kSectioned) return query_heads() + kv_heads() + g;
  return g * (group_size() + 2) + group_size() + 1;
}

QkvSlot PackedQkv::SlotAt(std::int64_t slot) const {
  HW_CHECK(slot >= 0 && slot < slots()) << "slot " << slot << " of " << slots();
  if (packing_ == Packing::kSectioned) {
    if (slot < query_heads()) return {QkvRole::kQuery, slot};
    const std::int64_t kv = slot - query_heads();
    if (kv < kv_heads()) return {QkvRole::kKey, kv};
    return {QkvRole::kValue, kv - kv_heads()};
  }
  const std::int64_t group = slot / (group_size() + 2);
  const std::int64_t within = slot % (group_size() + 2);
  if (within < group_size()) return {QkvRole::kQuery, group * group_size() + within};
  return {within == group_size() ? QkvRole::kKey : QkvRole::kValue, group};
}

}  // namespace headwise
