// The kernels of a decoder at the sizes of one of its layers, embedding and loss, for
// decoder_benchmark.cc.
#ifndef HEADWISE_TESTS_GPU_DECODER_CASES_H_
#define HEADWISE_TESTS_GPU_DECODER_CASES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "core/tensor/row_span.h"

struct CUstream_st;

namespace headwise {

// What of a model the kernels' sizes depend on.
struct DecoderShape {
  std::int64_t dim, query_heads, kv_heads, head_dim, window, expert_dim, experts_per_token,
      vocabulary;
};

// Those of model/presets/muse_spark.textproto.
inline constexpr DecoderShape kMuseSpark = {.dim = 8192,
                                            .query_heads = 128,
                                            .kv_heads = 16,
                                            .head_dim = 64,
                                            .window = 2048,
                                            .expert_dim = 4096,
                                            .experts_per_token = 8,
                                            .vocabulary = 202048};

// Device memory that holds bf16 values in [-1, 1), one beside the other; read as fp32, values of
// those magnitudes.
class BenchmarkMemory {
 public:
  // Values are there when the stream has passed. It outlives this object.
  static absl::StatusOr<BenchmarkMemory> Create(const CudaStream& stream);

  // What cannot be had is null; status() says so.
  template <typename T>
  RowSpan<T> Rows(std::int64_t rows, std::int64_t width) {
    return RowSpan<T>(reinterpret_cast<T*>(Allocate(rows * width * std::int64_t{sizeof(T)})), rows,
                      width);
  }
  // A copy of host values.
  template <typename T>
  T* Copy(const std::vector<T>& values) {
    const std::int64_t bytes = static_cast<std::int64_t>(values.size()) * std::int64_t{sizeof(T)};
    std::byte* const data = Allocate(bytes);
    if (data != nullptr) status_.Update(CopyToDevice(data, values.data(), bytes));
    return reinterpret_cast<T*>(data);
  }
  const absl::Status& status() const { return status_; }

 private:
  std::byte* Allocate(std::int64_t bytes);

  CUstream_st* stream_ = nullptr;
  DeviceMemory pattern_;
  std::list<DeviceMemory> allocated_;
  absl::Status status_;
};

// Enqueues a kernel's launches once.
using Enqueue = std::function<absl::Status(CUstream_st*)>;

struct DecoderCase {
  std::string kernel, pass, size;  // "swiglu", "forward", "32768 x 4096"
  std::int64_t bytes = 0;          // that must be read or written, once each
  double flops = 0;                // where arithmetic may be what bounds it
  // The work on new buffers, one set of them.
  std::function<Enqueue(BenchmarkMemory&)> make;
};

// Every kernel with activations in bf16, `tokens` tokens in one sequence, the most telling first;
// those of attention, which take longest, last.
std::vector<DecoderCase> DecoderCases(const DecoderShape& shape, std::int64_t tokens);

// AdamW on weights of the sizes at which muon_step's benchmark measures, or a small one.
std::vector<DecoderCase> OptimizerCases(bool tiny);

}  // namespace headwise

#endif  // HEADWISE_TESTS_GPU_DECODER_CASES_H_
