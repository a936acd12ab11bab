// Attention modules whose query, key and value projections are stored apart: what most
// architectures have in common.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_SEPARATE_H_
#define HEADWISE_OPTIM_ARCHITECTURES_SEPARATE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "optim/architectures/rule.h"

namespace headwise {

// q: [query_heads * head_dim, width], k: [kv_heads * head_dim, width],
// v: [kv_heads * value_dim, width], output: [width, query_heads * value_dim].
struct AttentionGeometry {
  std::int64_t width = 1;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;  // must divide query_heads
  std::int64_t head_dim = 1;
  std::int64_t value_dim = 0;  // 0: head_dim
};

using GeometryFn = std::function<AttentionGeometry(ModuleConfig&)>;

// head_dim of a module that does not read the field: hidden_size / num_attention_heads, always.
inline constexpr std::int64_t kHeadDimNotRead = -1;

// The defaults of a configuration class; 0: the field has none of its own, and is num_attention_heads
// (kv_heads) or hidden_size / num_attention_heads (head_dim).
struct GroupedQueryDefaults {
  std::int64_t hidden_size;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
};

// Reads hidden_size, num_attention_heads, num_key_value_heads and head_dim, as LlamaAttention does
// (modeling_llama.py).
GeometryFn GroupedQueryFields(GroupedQueryDefaults defaults);

// As many key/value heads as query heads, width / heads wide, from two fields and the names that
// they are known by.
struct MultiHeadFieldNames {
  std::vector<const char*> width;
  std::int64_t default_width;
  std::vector<const char*> heads;
  std::int64_t default_heads;
};
GeometryFn MultiHeadFields(MultiHeadFieldNames names);

struct SeparateNames {
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* output = "o_proj";
};

// One member of such a module.
Placement PlaceQuery(ModuleConfig& module, const AttentionGeometry& geometry, HeadRole role);
Placement PlaceKeyOrValue(ModuleConfig& module, const AttentionGeometry& geometry, HeadRole role);
// The output projection's columns.
Placement PlaceOutput(ModuleConfig& module, const AttentionGeometry& geometry);

// A module at `path` with these four members and `others` (rule.h).
AttentionModule SeparateModule(const char* path, const GeometryFn& geometry,
                               const SeparateNames& names = {},
                               std::vector<const char*> others = {});

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_SEPARATE_H_
