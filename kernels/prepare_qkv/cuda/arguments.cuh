// What the CUDA kernels of prepare_qkv are launched with. Plain data, passed by value. Pointers are
// device memory, strides are in elements, and shape letters are those of contract.h.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_ARGUMENTS_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_ARGUMENTS_CUH_

#include <cstdint>

#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// How elements pair up in RoPE: (i, i + R/2), (2i, 2i + 1), or not at all (NoPE).
enum class Rope { kNone, kHalf, kInterleaved };

// The heads of a packed row.
struct Heads {
  int query_heads;  // H
  int kv_heads;     // G
  int group_size;   // H / G
  int head_dim;     // D
  bool interleaved;
};

enum class Role { kQuery, kKey, kValue };

// A head: what it is, its index among the heads of that role, and its slot in a packed row.
struct HeadPlace {
  Role role;
  int head;
  int slot;
};

// Head `r` of kv group `group`: its query heads, then its key, then its value.
__device__ inline HeadPlace PlaceInGroup(const Heads& heads, int group, int r) {
  const Role role = r < heads.group_size    ? Role::kQuery
                    : r == heads.group_size ? Role::kKey
                                            : Role::kValue;
  const int head = role == Role::kQuery ? group * heads.group_size + r : group;
  if (heads.interleaved) return {role, head, group * (heads.group_size + 2) + r};
  const int section = role == Role::kQuery ? 0
                      : role == Role::kKey ? heads.query_heads
                                           : heads.query_heads + heads.kv_heads;
  return {role, head, section + head};
}

// What is done to a q or k head. Without a weight, multiplying by 1 gives the same bits as not
// multiplying, and so does a query scale of 1; only HeadNorm::kNone needs a branch.
struct HeadMaths {
  bool copy;           // neither norm nor RoPE: a bit copy
  bool norm;           // not HeadNorm::kNone
  bool weighted;       // w' from q_weight and k_weight, else 1
  bool gain_centered;  // w' = 1 + w
  bool round_before;   // Rounding::kBeforeWeight
  bool round_between;  // not Rounding::kOnlyAtEnd
  float epsilon;
  float query_scale;
};

// RoPE: the table, and which row of it a token takes.
struct Rotation {
  const float* cos;  // [length, R/2]
  const float* sin;
  std::int64_t length;
  int rotary_dim;                       // R
  const std::int64_t* positions;        // [T]
  unsigned long long* first_bad_token;  // NOLINT(google-runtime-int): atomicMin's type
};

// Whether token t's position has a table row. Where it has none, `reports` (one lane of a warp)
// keeps the smallest such token.
__device__ inline bool FindTableRow(const Rotation& rotation, std::int64_t t, bool reports,
                                    std::int64_t& position) {
  position = LoadCached(rotation.positions + t);
  if (position >= 0 && position < rotation.length) return true;
  if (reports) atomicMin(rotation.first_bad_token, static_cast<unsigned long long>(t));
  return false;
}

template <typename T>
struct ForwardArguments {
  Rows<const T> packed;
  Rows<T> q, k, v;  // v.data may be null
  const float* q_weight;
  const float* k_weight;
  std::int64_t tokens;
  Heads heads;
  HeadMaths maths;
  Rotation rotation;
  int heads_per_token;        // H + 2G, or H + G where v stays in place
  int heads_per_group;        // H/G + 2, or H/G + 1
  unsigned group_reciprocal;  // Reciprocal(heads_per_group)
  int warps_per_token;        // of the vector mapping
  bool paired;                // of the other mapping: two elements may move at once
};

template <typename T>
struct BackwardArguments {
  Rows<const T> packed, dq, dk, dv;
  Rows<T> dpacked;
  const float* q_weight;
  const float* k_weight;
  float* weight_partials;  // [tiles, G, 2, D]: q's, then k's
  std::int64_t tokens;
  Heads heads;
  HeadMaths maths;
  Rotation rotation;
  int groups_per_block;  // of the vector mapping
  int blocks_per_tile;
  bool paired;
};

// Division of numbers below 2^16 by one multiplication: i / d is the upper half of i Reciprocal(d),
// because i times the rounding error, less than d, stays below 2^32. 2 <= d < 2^16.
__host__ __device__ constexpr unsigned Reciprocal(int d) { return (0xffffffffu / d) + 1u; }
inline constexpr int kMaxReciprocal = 0xffff;

// Head i of the heads_per_token heads of a token, in the order of the packed row.
template <typename T>
__device__ HeadPlace PlaceInToken(const ForwardArguments<T>& a, int i) {
  const Heads& heads = a.heads;
  if (heads.interleaved) {
    const int group =
        static_cast<int>(a.heads_per_token <= kMaxReciprocal ? __umulhi(i, a.group_reciprocal)
                                                             : i / a.heads_per_group);
    return PlaceInGroup(heads, group, i - group * a.heads_per_group);
  }
  if (i < heads.query_heads) return {Role::kQuery, i, i};
  if (i < heads.query_heads + heads.kv_heads) return {Role::kKey, i - heads.query_heads, i};
  return {Role::kValue, i - heads.query_heads - heads.kv_heads, i};
}

// Where a head of token t goes.
template <typename T>
__device__ T* Output(const ForwardArguments<T>& a, std::int64_t t, const HeadPlace& place) {
  const Rows<T>& rows = place.role == Role::kQuery ? a.q : place.role == Role::kKey ? a.k : a.v;
  return rows.row(t) + static_cast<std::int64_t>(place.head) * a.heads.head_dim;
}

// Where the gradient of a head of token t comes from.
template <typename T>
__device__ const T* Gradient(const BackwardArguments<T>& a, std::int64_t t,
                             const HeadPlace& place) {
  const Rows<const T>& rows = place.role == Role::kQuery ? a.dq
                              : place.role == Role::kKey ? a.dk
                                                         : a.dv;
  return rows.row(t) + static_cast<std::int64_t>(place.head) * a.heads.head_dim;
}

// A head's slot in token t's row of the packed activation or of its gradient.
template <typename T>
__device__ T* Packed(const Rows<T>& rows, const Heads& heads, std::int64_t t,
                     const HeadPlace& place) {
  return rows.row(t) + static_cast<std::int64_t>(place.slot) * heads.head_dim;
}

// Where tile `tile` keeps its partial weight gradient, [D], of a kv group's q heads or of its key.
template <typename T>
__device__ float* WeightPartial(const BackwardArguments<T>& a, std::int64_t tile, int group,
                                bool key) {
  return a.weight_partials +
         ((tile * a.heads.kv_heads + group) * 2 + (key ? 1 : 0)) * a.heads.head_dim;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_ARGUMENTS_CUH_
