// PackedQkv: where each head lies in a row of the packed QKV activation, and in the rows of the
// packed weight.
//
// A packed row is `slots` heads of D consecutive elements; slots = H + 2 G. Two packings:
//
//   kInterleavedPerKvGroup: per kv group its H/G query heads, its key head, its value head.
//     Muse, Falcon, Megatron.
//   kSectioned: H query heads, then G key heads, then G value heads. Phi-3, MPT.
//
// Query head h belongs to kv group h / (H/G). The packed weight's rows [slot * D, (slot + 1) * D)
// make slot `slot`.
//
//   const PackedQkv layout = *PackedQkv::Interleaved({128, 16, 64});  // H, G, D
//   layout.slots();                                                   // 160
//   layout.KeySlot(0);                                                // 8
//
// Plain value; immutable; safe to share between threads.
#ifndef HEADWISE_CORE_HEADS_PACKED_QKV_H_
#define HEADWISE_CORE_HEADS_PACKED_QKV_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace headwise {

enum class Packing { kInterleavedPerKvGroup, kSectioned };

// "interleaved_per_kv_group", "sectioned".
const char* Name(Packing packing);

struct HeadGeometry {
  std::int64_t query_heads = 0;  // H
  std::int64_t kv_heads = 0;     // G; divides H
  std::int64_t head_dim = 0;     // D
};

// What a slot of a packed row holds.
enum class QkvRole { kQuery, kKey, kValue };

const char* Name(QkvRole role);

struct QkvSlot {
  QkvRole role;
  std::int64_t head;  // query head index for kQuery, kv group index otherwise
  friend bool operator==(const QkvSlot&, const QkvSlot&) = default;
};

class PackedQkv {
 public:
  // kInvalidArgument if a count is not positive, kv_heads does not divide query_heads, or
  // row_width() does not fit in 64 bits.
  static absl::StatusOr<PackedQkv> Create(Packing packing, HeadGeometry geometry);
  static absl::StatusOr<PackedQkv> Interleaved(HeadGeometry geometry);
  static absl::StatusOr<PackedQkv> Sectioned(HeadGeometry geometry);

  Packing packing() const { return packing_; }
  std::int64_t query_heads() const { return geometry_.query_heads; }
  std::int64_t kv_heads() const { return geometry_.kv_heads; }
  std::int64_t head_dim() const { return geometry_.head_dim; }
  // H / G
  std::int64_t group_size() const { return geometry_.query_heads / geometry_.kv_heads; }
  // H + 2 G
  std::int64_t slots() const { return geometry_.query_heads + 2 * geometry_.kv_heads; }
  // Elements of a packed row: slots() * head_dim().
  std::int64_t row_width() const { return slots() * geometry_.head_dim; }

  // 0 <= h < H and 0 <= g < G (checked).
  std::int64_t QuerySlot(std::int64_t h) const;
  std::int64_t KeySlot(std::int64_t g) const;
  std::int64_t ValueSlot(std::int64_t g) const;
  // The inverse; 0 <= slot < slots() (checked).
  QkvSlot SlotAt(std::int64_t slot) const;

 private:
  PackedQkv(Packing packing, HeadGeometry geometry) : packing_(packing), geometry_(geometry) {}

  Packing packing_;
  HeadGeometry geometry_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_HEADS_PACKED_QKV_H_
