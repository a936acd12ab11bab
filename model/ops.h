// ops: the model's operations on tensors, forward and backward, written by hand. An op checks
// shapes and dtypes, then calls the device's kernel; on Device::kMeta the second step does nothing,
// so a model run there is checked at any size in no time.
//
//   const OpContext ctx = {.compute = DType::kBF16, .pool = &pool, .storage = &storage};
//   Tensor y = ops::Linear(ctx, x, weight, bias);
//   Tensor dx = ops::LinearBackwardInput(ctx, dy, weight);
//
// A shape or dtype that does not fit is a programmer's error: a failed HW_CHECK that names the op,
// the argument, what it was and what it must be. User errors were caught before, in the config
// (model/config.h).
//
// Tensors may be one rank's shares (model/sharding.h). Then an op derives the layout of its results
// from its operands' by the rule of core/parallel/rules, in the same call; an operand that is
// unknown, or a refusal, which is noted, makes the results unknown. Results that overwrite a tensor
// of the caller's give it its layout.
//
// Three dtypes occur. The *compute dtype* stores activations and the copies of weights that matrix
// products read: kF32, kBF16, or kF64 (gradient tests). The *master dtype* holds weights,
// gradients, softmax statistics and logits: kF64 for kF64, else kF32. Tokens, positions
// and segments are spans on the host, on kCuda of device memory, which ops pass on and never read. Formulas and orders of operations are the kernels' (kernels/*/*.h).
//
// Shape letters: T tokens, N width, K in_features, V vocabulary, H query heads, G kv heads, D
// head_dim, F ffn width, E experts, k experts of a token.
#ifndef HEADWISE_MODEL_OPS_H_
#define HEADWISE_MODEL_OPS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/parallel/layout_type.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/thread_pool.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/residual_gate.h"
#include "kernels/gemm/gemm.h"
#include "kernels/launchers/launchers.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/swiglu/swiglu.h"
#include "model/ops/fault.h"
#include "model/sharding.h"
#include "model/storage_pool.h"

namespace headwise {

// Which implementation of a kernel family runs on tensors in CPU memory. The bits are the same. In an
// OpContext: its launchers.
enum class Kernels {
  kCpu,
  // Where a family has CUDA kernels, these, on the CPU (kernels/emulation): prepare_qkv; RMS
  // norm, elementwise, gates, SwiGLU; attention; embedding; cross-entropy of logits that lie on one
  // rank; biases' gradients; experts, whose products these are with GemmBackend::kContract. For tests
  // and for developing kernels: slower, and every access is checked.
  kCudaEmulated,
};

// A rotary table's values in the memory of a GPU.
struct RotaryOnGpu {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Where and how ops run. Cheap to copy. On Device::kCuda ops enqueue their work on the stream of the
// GPU and return; it can be captured if the storage has what it takes. An error of the GPU fails an
// HW_CHECK.
struct OpContext {
  Device device = Device::kCpu;
  DType compute = DType::kF32;
  GemmBackend gemm = GemmBackend::kOneDnn;
  const KernelLaunchers* launchers = nullptr;  // of CUDA kernels; null: kernels of the CPU
  // kCuda only: the GPU, words for faults there [ops::kFaults], the table of layers that rotate.
  Gpu* gpu = nullptr;
  std::uint64_t* faults = nullptr;
  RotaryOnGpu rotary;
  ThreadPool* pool = nullptr;      // not owned; on the CPU not null
  StoragePool* storage = nullptr;  // not owned; null: every result is a fresh allocation
  Sharding* sharding = nullptr;    // not owned; null: one rank, no layouts

  DType master() const { return compute == DType::kF64 ? DType::kF64 : DType::kF32; }
  // An uninitialised result.
  Tensor Empty(Shape shape, DType dtype) const;
  Tensor Empty(Shape shape) const { return Empty(std::move(shape), compute); }
};

namespace ops {

// Numbers on the host, with their layout where there are layouts.
struct TokenIds {
  absl::Span<const std::int32_t> ids;
  LayoutType layout = {};
};
struct TokenPositions {
  absl::Span<const std::int64_t> values;
  LayoutType layout = {};
};
// *value: on kCuda in device memory, on kMeta not read.
struct LossScale {
  const double* value = nullptr;
  LayoutType layout = {};
};

// --- embedding ---

// [T, N] compute from tokens [T] and table [V, N] master. A table that is a share of the rows gives
// zeros for tokens of others.
Tensor Embedding(const OpContext& ctx, const TokenIds& tokens, const Tensor& table);
// Overwrites dtable [V, N] master.
void EmbeddingBackward(const OpContext& ctx, const TokenIds& tokens, const Tensor& table,
                       const Tensor& dout, Tensor& dtable);

// --- norm ---

// x [T, N] compute, weight [N] master (undefined for kScaleless) -> [T, N].
Tensor RmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
               const Tensor& weight);
// dx [T, N]; overwrites dweight [N] master (undefined for kScaleless).
Tensor RmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
                       const Tensor& weight, const Tensor& dy, Tensor& dweight);
// Scaleless, over each head of x [T, heads D].
Tensor HeadRmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, std::int64_t head_dim,
                   const Tensor& x);
Tensor HeadRmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, std::int64_t head_dim,
                           const Tensor& x, const Tensor& dy);

// --- linear ---

// y = x W^T + bias: x [T, K], weight [N, K] compute, bias [N] master or undefined -> [T, N]
// compute.
Tensor Linear(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias);
// The same in the master dtype: the output head and routers.
Tensor LinearToMaster(const OpContext& ctx, const Tensor& x, const Tensor& weight,
                      const Tensor& bias);
// y [T, N] + bias [N] master.
Tensor AddBias(const OpContext& ctx, const Tensor& y, const Tensor& bias);
// dx = dy W: dy [T, N], weight [N, K] -> [T, K].
Tensor LinearBackwardInput(const OpContext& ctx, const Tensor& dy, const Tensor& weight);
// Overwrites dweight [N, K] master with dy^T x.
void LinearBackwardWeight(const OpContext& ctx, const Tensor& dy, const Tensor& x, Tensor& dweight);
// Overwrites dbias [N] master with the sum of dy's rows.
void LinearBackwardBias(const OpContext& ctx, const Tensor& dy, Tensor& dbias);
// All of them of LinearToMaster: dx from dy [T, N] master, which is rounded to compute first; dbias
// may be undefined.
Tensor LinearBackwardFromMaster(const OpContext& ctx, const Tensor& dy, const Tensor& x,
                                const Tensor& weight, Tensor& dweight, Tensor& dbias);

// --- attention ---

// q [T, H D], k and v [T, G D], or their gradients.
struct Qkv {
  Tensor q, k, v;
};

// What PrepareQkv and its backward need besides activations.
struct QkvArguments {
  const QkvPreparation& op;
  // [D] master; undefined unless the norm has weights.
  Tensor q_weight = {}, k_weight = {};
  TokenPositions positions = {};  // [T]; unused without RoPE
  bool unfused = false;           // run split, norm, RoPE and concat as separate kernels: same bits
};

// packed [T, (H + 2G) D] compute -> q, k, v.
Qkv PrepareQkv(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed);
// dpacked; overwrites dq_weight and dk_weight [G, D] master, per kv group (null unless the norm has
// weights).
Tensor PrepareQkvBackward(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed,
                          const Qkv& gradients, Tensor* dq_weight, Tensor* dk_weight);
// out [D] = tree over groups of per_group [G, D].
void ReduceHeadNormGradient(const OpContext& ctx, const Tensor& per_group, Tensor& out);

struct AttentionOutput {
  Tensor o;            // [T, H D]
  Tensor log_sum_exp;  // [T, H] master; undefined where no backward follows
};
// k, v [S, G D] may hold more rows than the segments name. sinks [H] master, or undefined. Every row
// of q must lie in a segment.
AttentionOutput Attention(const OpContext& ctx, const headwise::Attention& op,
                          absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                          const Tensor& sinks, bool keep_statistics);
// Fails, naming `op`, unless every one of the rows of queries lies in exactly one of the segments,
// in order, and their keys in the rows of keys. What the ops check where segments are on the host.
void CheckSegments(const char* op, absl::Span<const AttentionSegment> segments,
                   std::int64_t queries, std::int64_t keys);
// Overwrites d_sinks [H] master (null without sinks).
Qkv AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                      const Tensor& sinks, const AttentionOutput& saved, const Tensor& d_o,
                      Tensor* d_sinks);

// --- elementwise ---

// a + b.
Tensor Add(const OpContext& ctx, const Tensor& a, const Tensor& b);
// a + b in a's place.
[[nodiscard]] Tensor AddInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b);
// a <- a + b for two matrices in the master dtype: gradients of a weight with two uses.
void AddMasterInPlace(const OpContext& ctx, Tensor& a, const Tensor& b);

// alpha * h + beta * branch, alpha and beta from gate [N] master (kernels/elementwise).
Tensor GatedResidual(const OpContext& ctx, const ResidualGate& op, const Tensor& h,
                     const Tensor& branch, const Tensor& gate);
struct ResidualGradients {
  Tensor h, branch;
};
// Overwrites dgate [N] master.
ResidualGradients GatedResidualBackward(const OpContext& ctx, const ResidualGate& op,
                                        const Tensor& h, const Tensor& branch, const Tensor& gate,
                                        const Tensor& dout, Tensor& dgate);

struct GateGradients {
  Tensor x, gate;
};
// x * sigmoid(gate).
Tensor SigmoidGate(const OpContext& ctx, const Tensor& x, const Tensor& gate);
// dx in dout's place, dgate in gate's.
[[nodiscard]] GateGradients SigmoidGateBackwardInPlace(const OpContext& ctx, const Tensor& x,
                                                       const Tensor& gate, const Tensor& dout);

// silu(gate) * up, or its clamped form.
Tensor Swiglu(const OpContext& ctx, const headwise::Swiglu& op, const Tensor& gate,
              const Tensor& up);
// dgate in gate's place; dup, the x of the result, in up's.
[[nodiscard]] GateGradients SwigluBackwardInPlace(const OpContext& ctx, const headwise::Swiglu& op,
                                                  const Tensor& gate, const Tensor& up,
                                                  const Tensor& dout);

// to <- from in to's dtype; the same shape. (master, compute) pairs only. Of elements: a layout is
// the caller's.
void Convert(const OpContext& ctx, const Tensor& from, const Tensor& to);
// Rows [from_begin, + count) of `from` into rows [to_begin, + count) of `to`; same width and dtype;
// the two may overlap. For decoding, which has no layouts.
void CopyRows(const OpContext& ctx, const Tensor& from, std::int64_t from_begin, const Tensor& to,
              std::int64_t to_begin, std::int64_t count);
// Row t of `from` into row destinations[t] of `to` (kernels/elementwise); on kCuda destinations are in
// device memory. For decoding, which has no layouts.
void ScatterRows(const OpContext& ctx, const Tensor& from,
                 absl::Span<const std::int64_t> destinations, const Tensor& to);

// --- boundaries ---

// Between two parts of a model: x after the plan's steps of the module's boundary, and a gradient
// before them. Without sharding: x and the gradient.
Tensor Cross(const OpContext& ctx, absl::string_view boundary, const Tensor& x);
Tensor CrossBackward(const OpContext& ctx, absl::string_view boundary, const Tensor& gradient);
// The same in a parameter's gradient itself.
void CrossGradient(const OpContext& ctx, absl::string_view boundary, Tensor& gradient);
// gradient <- value: what is no gradient but travels as one (loads).
void CopyGradient(const OpContext& ctx, const Tensor& value, Tensor& gradient);
// The first dimension of x over all ranks.
std::int64_t TokensOfAllRanks(const OpContext& ctx, const Tensor& x);
// Notes a gradient whose layout is not that of its value's gradient.
void NoteDual(const OpContext& ctx, const Tensor& gradient, const Tensor& value);
// Whether the boundary takes steps forward.
bool Communicates(const OpContext& ctx, absl::string_view boundary);

// --- experts ---

// Where the tokens of a pass go, and in which rows their copies lie: all of expert 0, then all of
// expert 1, ...
struct Routing {
  Tensor weights;       // [T, k] master
  Tensor experts;       // [T, k] kI32
  ExpertGroups groups;  // on kMeta and kCuda its sizes only: no row_of, and offsets are 0
  // On kCuda what groups holds elsewhere: kI64 [E + 1] and [T k].
  Tensor offsets_on_gpu, row_of_on_gpu;
  Factor expert_factor;  // E, where there are layouts
};

// Rows sorted by expert, of the experts whose weights this rank has.
struct ExpertRows {
  // [E + 1]: rows [offsets[e], offsets[e + 1]) are expert e's; 0 on kMeta and kCuda.
  std::vector<std::int64_t> offsets;
  Tensor offsets_on_gpu;   // kI64 [E + 1], on kCuda
  std::int64_t count = 0;  // rows in all; on kMeta an estimate
};
// While they are with their tokens' rank, R = T k.
ExpertRows RowsOf(const Routing& routing);

// logits [T, E] master; selection_bias [E] master or undefined.
Routing Route(const OpContext& ctx, const Router& op, const Tensor& logits,
              const Tensor& selection_bias);
// dlogits [T, E] master from dweights [T, k] master.
Tensor RouteBackward(const OpContext& ctx, const Router& op, const Tensor& logits,
                     const Routing& routing, const Tensor& dweights);
// [E] master: the choices of each expert.
Tensor CountLoads(const OpContext& ctx, const Tensor& logits, const Routing& routing);
// *total <- *total + weight times the auxiliary loss of kernels/moe/balancing.h from the loads of
// `tokens` tokens, of which logits [T, E] may be a share. On kCuda it is in device memory; on kMeta it
// is left alone.
void AddBalancingLoss(const OpContext& ctx, const Tensor& logits, const Tensor& loads,
                      std::int64_t tokens, double weight, double* total);
// dlogits + the gradient of scale * weight * tokens times that loss, in dlogits' place.
[[nodiscard]] Tensor AddBalancingGradient(const OpContext& ctx, const Tensor& logits,
                                          const Tensor& loads, std::int64_t tokens, double weight,
                                          const LossScale& scale, const Tensor& dlogits);

// x [T, N] -> rows [R, N].
Tensor DispatchTokens(const OpContext& ctx, const Routing& routing, const Tensor& x);
Tensor DispatchTokensBackward(const OpContext& ctx, const Routing& routing, const Tensor& drows);
// outputs [R, N], weighted and summed -> [T, N].
Tensor CombineExperts(const OpContext& ctx, const Routing& routing, const Tensor& outputs);
struct ExpertGradients {
  Tensor outputs;  // [R, N]
  Tensor weights;  // [T, k] master
};
ExpertGradients CombineExpertsBackward(const OpContext& ctx, const Routing& routing,
                                       const Tensor& outputs, const Tensor& dy);

// One linear layer per expert on its rows: x [R, K], weight [E, N, K] compute, bias [E, N] master or
// undefined -> [R, N].
Tensor ExpertLinear(const OpContext& ctx, const ExpertRows& rows, const Tensor& x,
                    const Tensor& weight, const Tensor& bias);
Tensor ExpertLinearBackwardInput(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                                 const Tensor& weight);
// Overwrites dweight [E, N, K] master.
void ExpertLinearBackwardWeight(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                                const Tensor& x, Tensor& dweight);
// Overwrites dbias [E, N] master.
void ExpertLinearBackwardBias(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                              Tensor& dbias);

// --- loss ---

struct HeadLoss {
  Tensor losses;  // [T] master
  Tensor dz;  // [T, V] compute: the gradient of scale times their sum; undefined without backward
};
// The losses of logits x W^T, x [T, N], weight [V, N] compute, targets [T]; in chunks of tokens, so
// that the logits are never there at once.
HeadLoss LinearCrossEntropy(const OpContext& ctx, const LogitTransform& op, const Tensor& x,
                            const Tensor& weight, const TokenIds& targets, const LossScale& scale,
                            bool backward);
// *sum <- the sum of this rank's losses: adjacent-pair tree in double; 0 on kMeta. On kCuda it is in
// device memory.
void SumLosses(const OpContext& ctx, const Tensor& losses, double* sum);
// z <- transformed logits; kF32 only. For decoding, which has no layouts.
void TransformLogitsInPlace(const OpContext& ctx, const LogitTransform& op, const Tensor& z);

}  // namespace ops
}  // namespace headwise

#endif  // HEADWISE_MODEL_OPS_H_
