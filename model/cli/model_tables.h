// model_tables: what a model consists of, as text: parameters by role and optimizer group, and the
// memory they need.
#ifndef HEADWISE_MODEL_CLI_MODEL_TABLES_H_
#define HEADWISE_MODEL_CLI_MODEL_TABLES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"

namespace headwise {

// Which update rule each parameter gets; works on meta parameters. Errors as Optimizer::Create's.
absl::StatusOr<std::vector<ParameterAssignment>> AssignOptimizerGroups(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters);

// One row per (role, group): tensors, parameters, share, blocks that Newton-Schulz sees; and the
// sum.
std::string ParameterTable(const std::vector<ParameterAssignment>& assignments);

// The rows of MemoryTable: what takes memory, and how many bytes.
std::vector<std::pair<std::string, double>> MemoryRows(
    const RunConfig& config, const std::vector<ParameterAssignment>& assignments);

// kResourceExhausted, with both numbers, if the rows together are more than this machine's memory,
// or than the free memory of a GPU, which is not 0 then.
absl::Status CheckMemory(const RunConfig& config,
                         const std::vector<ParameterAssignment>& assignments,
                         std::int64_t gpu_memory = 0);

// Bytes of weights, gradients, optimizer state, low-precision copies and partial sums, on one
// device; without activations, whose size depends on the batch.
std::string MemoryTable(const RunConfig& config,
                        const std::vector<ParameterAssignment>& assignments);

std::int64_t NumParameters(const std::vector<ParameterAssignment>& assignments);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_MODEL_TABLES_H_
