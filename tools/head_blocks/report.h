// What head_blocks prints: a table of all weights, the same as JSON, and the row map of one weight.
#ifndef HEADWISE_TOOLS_HEAD_BLOCKS_REPORT_H_
#define HEADWISE_TOOLS_HEAD_BLOCKS_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/heads/head_blocks.h"
#include "optim/architectures/resolve.h"

namespace headwise {

// How coarse; `heads` is used by kHeadGroup only.
struct BlockSize {
  Granularity granularity = Granularity::kHead;
  std::int64_t heads = 1;
};

// "whole_matrix", "projection", "kv_group", "head", "head_group:8". kInvalidArgument names the
// choices.
absl::StatusOr<BlockSize> ParseBlockSize(const std::string& text);
std::string ToString(const BlockSize& size);

// One row per weight or, unless `every_layer`, per group of weights that differ only in their
// layer's number; then the counts. kInvalidArgument if a head group does not divide some weight's
// heads.
absl::StatusOr<std::string> LayoutTable(const CheckpointLayout& layout, const BlockSize& size,
                                        bool every_layer);

// The same as JSON, every weight on its own; with the ranges of the weight named `explain`, if that
// is not empty. kNotFound as RowMap().
absl::StatusOr<std::string> LayoutJson(const CheckpointLayout& layout, const BlockSize& size,
                                       const std::string& explain);

// Draws which rows (or columns) of one weight are which head, one character a head, and lists its
// blocks. kNotFound if there is no such weight.
absl::StatusOr<std::string> RowMap(const CheckpointLayout& layout, const BlockSize& size,
                                   const std::string& name);

// The weight of that name, which a user gave. kNotFound, with the nearest name, if there is none.
absl::StatusOr<const WeightLayout*> FindWeight(const CheckpointLayout& layout,
                                               const std::string& name);

}  // namespace headwise

#endif  // HEADWISE_TOOLS_HEAD_BLOCKS_REPORT_H_
