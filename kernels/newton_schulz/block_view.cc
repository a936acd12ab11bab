#include "kernels/newton_schulz/block_view.h"

namespace headwise::newton_schulz {

BlockView::BlockView(const HeadBlock& block, BlockAxis axis, std::int64_t rows, std::int64_t cols)
    : axis_(axis),
      rows_(axis == BlockAxis::kRows ? block.size() : rows),
      cols_(axis == BlockAxis::kColumns ? block.size() : cols),
      ranges_(block.ranges) {
  starts_.reserve(ranges_.size());
  std::int64_t start = 0;
  for (const IndexRange& range : ranges_) {
    starts_.push_back(start);
    start += range.size;
  }
}

}  // namespace headwise::newton_schulz
