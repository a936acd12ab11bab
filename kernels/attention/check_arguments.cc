#include "kernels/attention/check_arguments.h"

#include "core/base/check.h"

namespace headwise::attention {

void CheckArguments(const Attention& op, absl::Span<const AttentionSegment> segments,
                    std::int64_t query_rows, std::int64_t query_width, std::int64_t key_rows,
                    std::int64_t key_width) {
  HW_CHECK_GE(op.head_dim, 1);
  HW_CHECK_GE(op.kv_heads, 1);
  HW_CHECK_GE(op.query_heads, 1);
  HW_CHECK_EQ(op.query_heads % op.kv_heads, 0)
      << op.query_heads << " query heads over " << op.kv_heads << " kv heads";
  HW_CHECK_GE(op.window, 0);
  HW_CHECK_EQ(query_width, op.query_heads * op.head_dim) << "width of q";
  HW_CHECK_EQ(key_width, op.kv_heads * op.head_dim) << "width of k";
  for (const AttentionSegment& s : segments) {
    HW_CHECK(s.num_queries >= 0 && s.num_keys >= 0 && s.query_position >= 0 && s.key_position >= 0);
    HW_CHECK(s.query_begin >= 0 && s.query_begin + s.num_queries <= query_rows)
        << "queries " << s.query_begin << " + " << s.num_queries << " of " << query_rows;
    HW_CHECK(s.key_begin >= 0 && s.key_begin + s.num_keys <= key_rows)
        << "keys " << s.key_begin << " + " << s.num_keys << " of " << key_rows;
  }
}

void CheckSinks(const Attention& op, std::size_t sinks) {
  HW_CHECK(sinks == 0 || static_cast<std::int64_t>(sinks) == op.query_heads)
      << sinks << " sinks for " << op.query_heads << " query heads";
}

}  // namespace headwise::attention
