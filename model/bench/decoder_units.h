// decoder_units: the units of a decoder that hold on any device, since Extend returns when its
// logits are on the host: a prompt, and a token of each row; and what a training step must be. Decoder and pool must outlive the runners.
#ifndef HEADWISE_MODEL_BENCH_DECODER_UNITS_H_
#define HEADWISE_MODEL_BENCH_DECODER_UNITS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/thread_pool.h"
#include "model/bench/clock.h"
#include "model/decoder.h"
#include "optim/step_report.h"

namespace headwise {

// As BenchModel::Prefill and BenchModel::Decode (device.h).
absl::StatusOr<std::unique_ptr<UnitRunner>> PrefillRunner(Decoder& decoder, std::int64_t tokens,
                                                          ThreadPool& pool);
absl::StatusOr<std::unique_ptr<UnitRunner>> DecodeRunner(Decoder& decoder, std::int64_t rows,
                                                         std::int64_t context, ThreadPool& pool);

// OK if a training step can be timed: kAborted, naming the parameter, if its gradient was not finite.
absl::Status CheckTimedStep(const StepReport& report);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_DECODER_UNITS_H_
