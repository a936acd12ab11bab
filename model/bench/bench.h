// bench: plans and runs `muse bench`: units of a model, fused and unfused in turns with their
// floors, and the kernels of a training step.
//
//   BenchPlan plan = {.config = config, .tokens = {512, 2048}};
//   HW_RETURN_IF_ERROR(CheckPlan(plan));
//   HW_RETURN_IF_ERROR(CheckMemory(plan, *device).status());
//   HW_RETURN_IF_ERROR(MeasureUnits(plan, *device, print_unit));
//   HW_RETURN_IF_ERROR(MeasureKernels(plan, *device, print_kernel));
#ifndef HEADWISE_MODEL_BENCH_BENCH_H_
#define HEADWISE_MODEL_BENCH_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/proto/config.pb.h"
#include "model/bench/clock.h"
#include "model/bench/device.h"
#include "model/bench/report.h"

namespace headwise {

struct BenchPlan {
  RunConfig config;                  // resolved and valid
  std::vector<std::int64_t> tokens;  // sizes; ascending, no two alike
  std::int64_t rows = 8;             // of decoding
  bool train = true, prefill = true, decode = true;
  bool kernels = true;  // at the largest of tokens
  // Without, unfused_qkv is neither made nor measured.
  bool unfused = true;
  ClockOptions clock;
};

// "512,2048" in ascending order. kInvalidArgument names the word that is no number from 1, or that
// is there twice.
absl::StatusOr<std::vector<std::int64_t>> ParseTokens(absl::string_view text);

// Sets what --units names: "train", "prefill", "decode", "kernels", separated by commas.
// kInvalidArgument names the word that is none of them, and the nearest.
absl::Status ParseUnits(absl::string_view text, BenchPlan* plan);

// kInvalidArgument: tokens that a sequence cannot have, where prefill or decode is asked for; rows
// or rounds below 1.
absl::Status CheckPlan(const BenchPlan& plan);

// Bytes that the plan takes at its largest: the models with weight copies, activations and caches,
// if the plan trains also with gradients and optimizer state, and the copy beside decoding; or a
// kernel's operands with the copy beside it. Counted on Device::kMeta, so it may be far more than
// there is.
absl::StatusOr<double> MemoryNeeded(const BenchPlan& plan);

// MemoryNeeded(); kResourceExhausted, with both figures, if the device has less.
absl::StatusOr<double> CheckMemory(const BenchPlan& plan, const BenchDevice& device);

// Every unit at every size, in the order train, prefill, decode; calls report() after each.
absl::Status MeasureUnits(const BenchPlan& plan, BenchDevice& device,
                          absl::FunctionRef<void(const UnitResult&)> report);

// Every kernel of StepKernels() (kernel_cases.h) at the largest size.
absl::Status MeasureKernels(const BenchPlan& plan, BenchDevice& device,
                            absl::FunctionRef<void(const KernelResult&)> report);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_BENCH_H_
