// What Newton-Schulz and the Muon step refuse about the matrices they are given, said once.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/heads/head_blocks.h"

namespace headwise::newton_schulz {

// kInvalidArgument, beginning with `what`, unless `span` is a matrix of rows x cols that can be
// walked: data where there are elements, and rows that do not run into each other.
absl::Status CheckSpan(const char* what, const void* data, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride);

// kInvalidArgument unless `blocks` tiles the axis of a matrix of rows x cols.
absl::Status CheckBlocks(const HeadBlocks* blocks, std::int64_t rows, std::int64_t cols);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_
