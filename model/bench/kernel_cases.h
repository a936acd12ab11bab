// kernel_cases: the kernels of a training step, each with what it must move and compute.
//
//   for (const KernelCase& c : StepKernels(config, 2048, device.has_unfused_qkv())) {
//     HW_ASSIGN_OR_RETURN(KernelWork work, c.make(device));
//     ... device.Time(std::move(work)) ...
//   }
//
// Shapes are those of the configuration at a number of tokens; arguments are random numbers. What a
// layer does several times (recomputation in the backward pass included) is one case with its
// calls. Not there: routing, dispatch and combination of experts, biases, and whatever is smaller
// than a matrix.
#ifndef HEADWISE_MODEL_BENCH_KERNEL_CASES_H_
#define HEADWISE_MODEL_BENCH_KERNEL_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "model/bench/device.h"

namespace headwise {

struct KernelCase {
  using Make = std::function<absl::StatusOr<KernelWork>(BenchDevice& device)>;

  std::string name;         // "prepare_qkv.forward"
  std::int64_t calls = 0;   // in a training step
  std::int64_t bytes = 0;   // of a call (traffic.h)
  double flops = 0;         // of a call: of linear layers and attention, else 0
  std::int64_t memory = 0;  // that `make` takes, about
  Make make;                // allocates; the work is one call
};

// The largest first, by calls * bytes. Sequences are as BenchModel::Train's. The config must be
// resolved and valid. Without `unfused` the separate kernels of prepare_qkv are left out.
std::vector<KernelCase> StepKernels(const RunConfig& config, std::int64_t tokens, bool unfused);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_KERNEL_CASES_H_
