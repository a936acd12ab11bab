// Layout rules of the attention layer: the packed QKV activation split into heads, normed and
// rotated; and attention itself; forward and backward.
//
// Dimensions are recognised by the names of their factors: a packed row is [G slots D] (interleaved
// per kv group: slots = q M | k | v) or [slots D] (sectioned: slots = q G M | k G | v G), queries
// are [T, G M D], keys and values [S, G D]. Groups of whole documents are a factor of kind kBatch
// at the head of T and S: attention stays within one, so a mesh axis may shard it (dp); what
// follows it is the tokens of a group, of which a query must see all keys (cp: all_gather k and v).
// Conventions otherwise as in layer_rules.h.
#ifndef HEADWISE_CORE_PARALLEL_RULES_ATTENTION_RULES_H_
#define HEADWISE_CORE_PARALLEL_RULES_ATTENTION_RULES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/parallel/layout_type.h"

namespace headwise::rules {

// The dimension of a packed QKV row or weight: G kv groups of M query heads, heads of D.
Dim InterleavedQkv(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim);
Dim SectionedQkv(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim);
// [G M D] and [G D].
Dim QueryHeads(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim);
Dim KeyHeads(std::int64_t kv_groups, std::int64_t head_dim);

struct QkvTypes {
  LayoutType q, k, v;
};

// What prepare_qkv needs besides the packed activation; null where there is none.
struct QkvOperands {
  const LayoutType* q_weight = nullptr;   // [D]
  const LayoutType* k_weight = nullptr;   // [D]
  const LayoutType* positions = nullptr;  // [T] integers; with RoPE
  bool norm = false;                      // q and k are normed, with or without weights
};

absl::StatusOr<QkvTypes> PrepareQkv(const QkvOperands& operands, const LayoutType& packed);
struct QkvGradients {
  LayoutType packed;
  LayoutType q_weight, k_weight;  // [G, D], per kv group; undefined without weights
};
absl::StatusOr<QkvGradients> PrepareQkvBackward(const QkvOperands& operands,
                                                const LayoutType& packed, const QkvTypes& gradients,
                                                DType weight_dtype);
// [G, D] summed over kv groups: [D].
absl::StatusOr<LayoutType> ReduceHeadNormGradient(const LayoutType& per_group);

// OK if the queries' rows are those of the pass's tokens [T], which a mask is made for: it counts
// the tokens of a rank and knows their places in their documents. kFailedPrecondition otherwise.
absl::Status CheckMask(const LayoutType& tokens, const LayoutType& q);

struct AttentionTypes {
  LayoutType o;            // [T, G M D]
  LayoutType log_sum_exp;  // [T, G M], in `statistics`
};
// sinks [G M]: a learned logit per query head; null without.
absl::StatusOr<AttentionTypes> Attention(const QkvTypes& qkv, const LayoutType* sinks,
                                         DType statistics);
struct AttentionGradients {
  QkvTypes qkv;
  LayoutType sinks;  // undefined without sinks
};
absl::StatusOr<AttentionGradients> AttentionBackward(const QkvTypes& qkv, const LayoutType* sinks,
                                                     const AttentionTypes& saved,
                                                     const LayoutType& d_o);

}  // namespace headwise::rules

#endif  // HEADWISE_CORE_PARALLEL_RULES_ATTENTION_RULES_H_
