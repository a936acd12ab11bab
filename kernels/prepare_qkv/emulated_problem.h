// A Problem (test_problem.h) run by the emulated CUDA kernels: every matrix a region whose gaps are
// out of bounds, outputs and scratch poisoned, positions in host or device memory.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_EMULATED_PROBLEM_H_
#define HEADWISE_KERNELS_PREPARE_QKV_EMULATED_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/emulation/emulation.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {

// Memory that a launch needs besides the problem's own.
class LaunchMemory {
 public:
  // Poisoned. `device_positions`: positions are already "on the device".
  LaunchMemory(const QkvPreparation& op, absl::Span<const std::int64_t> positions,
               std::int64_t tokens, bool device_positions);

  QkvLaunch launch();
  void AddRegions(emulation::Session& session);
  // -1 if none.
  std::int64_t first_bad_token() const { return static_cast<std::int64_t>(first_bad_token_); }

 private:
  const QkvPreparation& op_;
  bool device_positions_;
  std::vector<std::int64_t> positions_;
  std::vector<float> scratch_;
  std::uint64_t first_bad_token_ = ~std::uint64_t{0};
};

// Adds the matrices and weights of the problem, inputs read-only, by the names of the contract's
// members ("packed", "dq_weight_per_group", ...). The results must outlive the session's launches.
template <typename T>
void AddForwardRegions(const Problem<T>& problem, const Results<T>& results,
                       emulation::Session& session);
template <typename T>
void AddBackwardRegions(const Problem<T>& problem, const Results<T>& results,
                        emulation::Session& session);

// Forward and backward under one session each.
template <typename T>
absl::StatusOr<Results<T>> RunEmulated(const Problem<T>& problem, const emulation::Options& options,
                                       bool device_positions);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_EMULATED_PROBLEM_H_
