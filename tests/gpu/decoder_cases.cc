#include "tests/gpu/decoder_cases.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/embedding/cuda.h"
#include "kernels/rms_norm/cuda.h"
#include "tests/gpu/launchers.h"

namespace headwise {
namespace {

using T = BFloat16;
constexpr std::int64_t kStored = sizeof(T), kFloat = sizeof(float);

absl::Span<float> Row(BenchmarkMemory& memory, std::int64_t size) {
  const RowSpan<float> row = memory.Rows<float>(1, size);
  return {row.data, static_cast<std::size_t>(size)};
}

std::string Size(std::int64_t rows, std::int64_t width) { return absl::StrCat(rows, " x ", width); }

// Spread over the vocabulary.
std::vector<std::int32_t> Tokens(std::int64_t tokens, std::int64_t vocabulary) {
  std::vector<std::int32_t> values(tokens);
  for (std::int64_t t = 0; t < tokens; ++t) {
    values[t] = static_cast<std::int32_t>(t * 7919 % vocabulary);
  }
  return values;
}

std::uint64_t* Fault(BenchmarkMemory& memory) {
  return memory.Copy(std::vector<std::uint64_t>{~std::uint64_t{0}});
}

void AddNorms(std::int64_t rows, std::int64_t width, const RmsNorm& op,
              std::vector<DecoderCase>& cases) {
  const std::int64_t elements = rows * width;
  const std::int64_t gains = op.style == RmsNormStyle::kScaleless ? 0 : width;
  const std::string size = Size(rows, width);
  cases.push_back({"rms_norm", "forward", size, 2 * elements * kStored, 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto x = memory.Rows<T>(rows, width), y = memory.Rows<T>(rows, width);
                     const auto weight = Row(memory, gains);
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().RmsNormForward(op, x, weight, y, stream);
                     };
                   }});
  cases.push_back(
      {"rms_norm", "backward", size, 3 * elements * kStored, 0,
       [=](BenchmarkMemory& memory) -> Enqueue {
         const auto x = memory.Rows<T>(rows, width), dy = memory.Rows<T>(rows, width),
                    dx = memory.Rows<T>(rows, width);
         const auto weight = Row(memory, gains), dweight = Row(memory, gains);
         float* const scratch = Row(memory, RmsNormBackwardScratch(op, rows, width)).data();
         return [=](CUstream_st* stream) {
           return Kernels<T>().RmsNormBackward(op, x, weight, dy, dx, dweight, scratch, stream);
         };
       }});
}

// Kernels of matrices alone: so many inputs and outputs of one size.
using OnMatrices = std::function<absl::Status(const std::vector<RowSpan<T>>&, CUstream_st*)>;
DecoderCase MatrixCase(const char* kernel, const char* pass, std::int64_t rows, std::int64_t width,
                       int matrices, OnMatrices run) {
  return {kernel,
          pass,
          Size(rows, width),
          matrices * rows * width * kStored,
          0,
          [=, run = std::move(run)](BenchmarkMemory& memory) -> Enqueue {
            std::vector<RowSpan<T>> m;
            for (int i = 0; i < matrices; ++i) m.push_back(memory.Rows<T>(rows, width));
            return [=](CUstream_st* stream) { return run(m, stream); };
          }};
}

void AddElementwise(std::int64_t tokens, std::int64_t dim, std::vector<DecoderCase>& cases) {
  cases.push_back(MatrixCase("add", "forward", tokens, dim, 3, [](const auto& m, auto* stream) {
    return Kernels<T>().Add(m[0], m[1], m[2], stream);
  }));
  cases.push_back(
      MatrixCase("sigmoid_gate", "forward", tokens, dim, 3, [](const auto& m, auto* stream) {
        return Kernels<T>().SigmoidGateForward(m[0], m[1], m[2], stream);
      }));
  cases.push_back(
      MatrixCase("sigmoid_gate", "backward", tokens, dim, 5, [](const auto& m, auto* stream) {
        return Kernels<T>().SigmoidGateBackward(m[0], m[1], m[2], m[3], m[4], stream);
      }));
  const ResidualGate op = {.temperature = 0.3};
  const std::int64_t elements = tokens * dim;
  cases.push_back({"residual_gate", "forward", Size(tokens, dim), 3 * elements * kStored, 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto a = memory.Rows<T>(tokens, dim), b = memory.Rows<T>(tokens, dim),
                                out = memory.Rows<T>(tokens, dim);
                     const auto gate = Row(memory, dim);
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().ResidualGateForward(op, a, b, gate, out, stream);
                     };
                   }});
  cases.push_back({"residual_gate", "backward", Size(tokens, dim), 5 * elements * kStored, 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto a = memory.Rows<T>(tokens, dim), b = memory.Rows<T>(tokens, dim),
                                d = memory.Rows<T>(tokens, dim), da = memory.Rows<T>(tokens, dim),
                                db = memory.Rows<T>(tokens, dim);
                     const auto gate = Row(memory, dim), dgate = Row(memory, dim);
                     float* const scratch =
                         Row(memory, ResidualGateBackwardScratch(tokens, dim)).data();
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().ResidualGateBackward(op, a, b, gate, d, da, db, dgate,
                                                                scratch, stream);
                     };
                   }});
  cases.push_back({"convert", "to fp32", Size(tokens, dim), elements * (kStored + kFloat), 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto in = memory.Rows<T>(tokens, dim);
                     const auto out = memory.Rows<float>(tokens, dim);
                     return [=](CUstream_st* stream) {
                       return Kernels().ConvertFromBFloat16(in, out, stream);
                     };
                   }});
}

void AddSwiglu(std::int64_t rows, std::int64_t width, std::vector<DecoderCase>& cases) {
  cases.push_back(MatrixCase("swiglu", "forward", rows, width, 3, [](const auto& m, auto* stream) {
    return Kernels<T>().SwigluForward({}, m[0], m[1], m[2], stream);
  }));
  cases.push_back(MatrixCase("swiglu", "backward", rows, width, 5, [](const auto& m, auto* stream) {
    return Kernels<T>().SwigluBackward({}, m[0], m[1], m[2], m[3], m[4], stream);
  }));
}

void AddVocabulary(const DecoderShape& s, std::int64_t tokens, std::vector<DecoderCase>& cases) {
  const std::int64_t ids = s.vocabulary, dim = s.dim;
  const std::string table = absl::StrCat(tokens, " of ", ids, " x ", dim);
  cases.push_back({"embedding", "forward", table, tokens * dim * (kStored + kFloat), 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto rows = memory.Rows<float>(ids, dim);
                     const auto out = memory.Rows<T>(tokens, dim);
                     const auto* const values = memory.Copy(Tokens(tokens, ids));
                     std::uint64_t* const fault = Fault(memory);
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().EmbeddingForward(absl::MakeConstSpan(values, tokens),
                                                            rows, out, fault, stream, {});
                     };
                   }});
  cases.push_back({"embedding", "backward", table, tokens * dim * kStored + ids * dim * kFloat, 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto d = memory.Rows<T>(tokens, dim);
                     const auto rows = memory.Rows<float>(ids, dim);
                     const auto* const values = memory.Copy(Tokens(tokens, ids));
                     std::uint64_t* const fault = Fault(memory);
                     std::int32_t* const scratch =
                         memory.Rows<std::int32_t>(1, EmbeddingBackwardScratch(tokens, ids)).data;
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().EmbeddingBackward(absl::MakeConstSpan(values, tokens), d,
                                                             rows, scratch, fault, stream, {});
                     };
                   }});
  cases.push_back({"cross_entropy", "both", Size(tokens, ids), tokens * ids * (kStored + kFloat), 0,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const auto z = memory.Rows<float>(tokens, ids);
                     const auto dz = memory.Rows<T>(tokens, ids);
                     const auto losses = Row(memory, tokens);
                     const auto* const values = memory.Copy(Tokens(tokens, ids));
                     const double* const loss_scale =
                         memory.Copy(std::vector<double>{1.0 / static_cast<double>(tokens)});
                     std::uint64_t* const fault = Fault(memory);
                     return [=](CUstream_st* stream) {
                       return Kernels<T>().CrossEntropy({.cap = 20}, z,
                                                        absl::MakeConstSpan(values, tokens),
                                                        loss_scale, losses, dz, fault, stream);
                     };
                   }});
}

// So many parameters of d x n elements in one launch.
void AddAdamW(std::int64_t blocks, std::int64_t d, std::int64_t n,
              std::vector<DecoderCase>& cases) {
  const std::int64_t elements = blocks * d * n;
  cases.push_back(
      {"adamw", "step", absl::StrCat(blocks, "x", d, "x", n), 28 * elements, 0,
       [=](BenchmarkMemory& memory) -> Enqueue {
         std::vector<AdamWTensors> parameters;
         for (std::int64_t i = 0; i < blocks; ++i) {
           parameters.push_back(
               {Row(memory, d * n), Row(memory, d * n), Row(memory, d * n), Row(memory, d * n)});
         }
         const absl::StatusOr<AdamWPlan> plan = AdamWPlan::Create(parameters);
         if (!plan.ok()) return [=](CUstream_st*) { return plan.status(); };
         const auto* const table =
             memory.Copy(std::vector<std::byte>(plan->table().begin(), plan->table().end()));
         const auto* const factors =
             memory.Copy(std::vector<AdamWFactors<float>>{MakeAdamWFactors<float>({}, 1, 0.5)});
         return [=, plan = *plan](CUstream_st* stream) {
           return Kernels().AdamWStep(plan, {.stream = stream, .table = table, .factors = factors});
         };
       }});
}

void AddAttention(const DecoderShape& s, std::int64_t tokens, std::int64_t window,
                  std::vector<DecoderCase>& cases) {
  const Attention op = {.query_heads = s.query_heads,
                        .kv_heads = s.kv_heads,
                        .head_dim = s.head_dim,
                        .scale = 0.125,
                        .window = window};
  const std::int64_t q_width = s.query_heads * s.head_dim, k_width = s.kv_heads * s.head_dim;
  // Pairs of a query and a key that it sees.
  const std::int64_t seen = window == 0 ? tokens : std::min(window, tokens);
  const std::int64_t pairs = seen * (seen + 1) / 2 + (tokens - seen) * seen;
  const double product = 2.0 * static_cast<double>(pairs) * static_cast<double>(q_width);
  const std::string size =
      absl::StrCat(tokens, " tokens", window == 0 ? "" : absl::StrCat(", window ", window));
  struct Buffers {
    RowSpan<T> q, k, v, o, d_o, dq, dk, dv;
    RowSpan<float> log_sum_exp;
    const AttentionSegment* segment;
    AttentionLaunch launch;
  };
  const auto make = [=](BenchmarkMemory& memory) {
    Buffers b;
    for (RowSpan<T>* m : {&b.q, &b.o, &b.d_o, &b.dq}) *m = memory.Rows<T>(tokens, q_width);
    for (RowSpan<T>* m : {&b.k, &b.v, &b.dk, &b.dv}) *m = memory.Rows<T>(tokens, k_width);
    b.log_sum_exp = memory.Rows<float>(tokens, s.query_heads);
    b.segment =
        memory.Copy(std::vector<AttentionSegment>{{.num_queries = tokens, .num_keys = tokens}});
    b.launch = {.first_bad_segment = Fault(memory),
                .scratch = Row(memory, AttentionBackwardScratch(op, tokens, false)).data()};
    return b;
  };
  const std::int64_t q_bytes = tokens * q_width * kStored, k_bytes = tokens * k_width * kStored;
  cases.push_back({"attention", "forward", size, 2 * q_bytes + 2 * k_bytes, 2 * product,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const Buffers b = make(memory);
                     return [=](CUstream_st* stream) {
                       AttentionLaunch launch = b.launch;
                       launch.stream = stream;
                       return Kernels<T>().AttentionForward(op, absl::MakeConstSpan(b.segment, 1),
                                                            b.q, b.k, b.v, {}, b.o, b.log_sum_exp,
                                                            launch);
                     };
                   }});
  cases.push_back({"attention", "backward", size, 4 * q_bytes + 4 * k_bytes, 5 * product,
                   [=](BenchmarkMemory& memory) -> Enqueue {
                     const Buffers b = make(memory);
                     return [=](CUstream_st* stream) {
                       AttentionLaunch launch = b.launch;
                       launch.stream = stream;
                       return Kernels<T>().AttentionBackward(op, absl::MakeConstSpan(b.segment, 1),
                                                             b.q, b.k, b.v, {}, b.o, b.log_sum_exp,
                                                             b.d_o, b.dq, b.dk, b.dv, {}, launch);
                     };
                   }});
}

}  // namespace

absl::StatusOr<BenchmarkMemory> BenchmarkMemory::Create(const CudaStream& stream) {
  constexpr std::int64_t kElements = std::int64_t{1} << 23;
  std::vector<BFloat16> values(kElements);
  std::uint32_t state = 1;
  for (BFloat16& x : values) {
    state = state * 1664525u + 1013904223u;
    x = RoundToBFloat16(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f);
  }
  BenchmarkMemory memory;
  memory.stream_ = stream.get();
  HW_ASSIGN_OR_RETURN(memory.pattern_, DeviceMemory::Allocate(kElements * kStored));
  HW_RETURN_IF_ERROR(CopyToDevice(memory.pattern_.data(), values.data(), memory.pattern_.size()));
  return memory;
}

std::byte* BenchmarkMemory::Allocate(std::int64_t bytes) {
  if (!status_.ok() || bytes == 0) return nullptr;
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(bytes);
  status_.Update(memory.status());
  if (!memory.ok()) return nullptr;
  allocated_.push_back(*std::move(memory));
  std::byte* const data = allocated_.back().data();
  for (std::int64_t at = 0; at < bytes; at += pattern_.size()) {
    status_.Update(
        CopyOnDevice(data + at, pattern_.data(), std::min(pattern_.size(), bytes - at), stream_));
  }
  return data;
}

std::vector<DecoderCase> OptimizerCases(bool tiny) {
  std::vector<DecoderCase> cases;
  if (tiny) {
    AddAdamW(2, 4, 300, cases);
  } else {
    AddAdamW(160, 64, 8192, cases);
    AddAdamW(48, 128, 4096, cases);
  }
  return cases;
}

std::vector<DecoderCase> DecoderCases(const DecoderShape& shape, std::int64_t tokens) {
  std::vector<DecoderCase> cases;
  AddNorms(tokens, shape.dim, {.style = RmsNormStyle::kGainCentered}, cases);
  AddNorms(tokens * shape.query_heads, shape.head_dim, {.style = RmsNormStyle::kScaleless}, cases);
  AddElementwise(tokens, shape.dim, cases);
  AddSwiglu(tokens * shape.experts_per_token, shape.expert_dim, cases);
  AddVocabulary(shape, tokens, cases);
  AddAttention(shape, tokens, shape.window, cases);
  AddAttention(shape, tokens, 0, cases);
  return cases;
}

}  // namespace headwise
