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
// Three dtypes occur. The *compute dtype* stores activations and the copies of weights that matrix
// products read: kF32, kBF16, or kF64 (gradient tests). The *master dtype* holds weights,
// gradients, softmax statistics and logits: kF64 for kF64, else kF32. Tokens and positions are
// spans on the host. Formulas and orders of operations are the kernels' (kernels/*/*.h).
//
// Shape letters: T tokens, N width, K in_features, V vocabulary, H query heads, G kv heads, D
// head_dim, F ffn width, E experts, k experts of a token.
#ifndef HEADWISE_MODEL_OPS_H_
#define HEADWISE_MODEL_OPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/thread_pool.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/residual_gate.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/swiglu/swiglu.h"
#include "model/storage_pool.h"

namespace headwise {

// Which implementation of a kernel family runs on tensors in CPU memory. The bits are the same.
enum class Kernels {
  kCpu,
  // Where a family has CUDA kernels, these, on the CPU (kernels/emulation): prepare_qkv, fused. For
  // tests and for developing kernels: slower, and every access is checked.
  kCudaEmulated,
};

// Where and how ops run. Cheap to copy.
struct OpContext {
  Device device = Device::kCpu;
  DType compute = DType::kF32;
  GemmBackend gemm = GemmBackend::kOneDnn;
  Kernels kernels = Kernels::kCpu;
  ThreadPool* pool = nullptr;      // not owned; may be null on kMeta only
  StoragePool* storage = nullptr;  // not owned; null: every result is a fresh allocation

  DType master() const { return compute == DType::kF64 ? DType::kF64 : DType::kF32; }
  // An uninitialised result.
  Tensor Empty(Shape shape, DType dtype) const;
  Tensor Empty(Shape shape) const { return Empty(std::move(shape), compute); }
};

namespace ops {

// --- embedding ---

// [T, N] compute from tokens [T] and table [V, N] master.
Tensor Embedding(const OpContext& ctx, absl::Span<const std::int32_t> tokens, const Tensor& table);
// Overwrites dtable [V, N] master.
void EmbeddingBackward(const OpContext& ctx, absl::Span<const std::int32_t> tokens,
                       const Tensor& dout, const Tensor& dtable);

// --- norm ---

// x [T, N] compute, weight [N] master (undefined for kScaleless) -> [T, N].
Tensor RmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
               const Tensor& weight);
// dx [T, N]; overwrites dweight [N] master (undefined for kScaleless).
Tensor RmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
                       const Tensor& weight, const Tensor& dy, const Tensor& dweight);

// --- linear ---

// y = x W^T + bias: x [T, K], weight [N, K] compute, bias [N] master or undefined -> [T, N]
// compute.
Tensor Linear(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias);
// The same into z [T, N] master: the output head and routers.
void LinearToMaster(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Tensor& z);
// dx = dy W: dy [T, N], weight [N, K] -> [T, K].
Tensor LinearBackwardInput(const OpContext& ctx, const Tensor& dy, const Tensor& weight);
// Overwrites dweight [N, K] master with dy^T x.
void LinearBackwardWeight(const OpContext& ctx, const Tensor& dy, const Tensor& x,
                          const Tensor& dweight);
// Overwrites dbias [N] master with the sum of dy's rows.
void LinearBackwardBias(const OpContext& ctx, const Tensor& dy, const Tensor& dbias);

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
  absl::Span<const std::int64_t> positions = {};  // [T]; unused without RoPE
  bool unfused = false;  // run split, norm, RoPE and concat as separate kernels: same bits
};

// packed [T, (H + 2G) D] compute -> q, k, v.
Qkv PrepareQkv(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed);
// dpacked; overwrites dq_weight and dk_weight [G, D] master, per kv group (undefined unless the
// norm has weights).
Tensor PrepareQkvBackward(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed,
                          const Qkv& gradients, const Tensor& dq_weight, const Tensor& dk_weight);
// out [D] = tree over groups of per_group [G, D].
void ReduceHeadNormGradient(const OpContext& ctx, const Tensor& per_group, const Tensor& out);

// o [T, H D]. k, v [S, G D] may hold more rows than the segments name. log_sum_exp [T, H] master is
// overwritten, or undefined where no backward follows. sinks [H] master, or undefined. Every row of
// q must lie in a segment.
Tensor Attention(const OpContext& ctx, const headwise::Attention& op,
                 absl::Span<const AttentionSegment> segments, const Qkv& qkv, const Tensor& sinks,
                 const Tensor& log_sum_exp);
// Overwrites d_sinks [H] master (undefined without sinks).
Qkv AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                      const Tensor& sinks, const Tensor& o, const Tensor& log_sum_exp,
                      const Tensor& d_o, const Tensor& d_sinks);

// --- elementwise ---

// a + b.
Tensor Add(const OpContext& ctx, const Tensor& a, const Tensor& b);
// a <- a + b.
void AddInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b);
// The same for two matrices in the master dtype: gradients of a weight with two uses.
void AddMasterInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b);

// alpha * h + beta * branch, alpha and beta from gate [N] master (kernels/elementwise).
Tensor GatedResidual(const OpContext& ctx, const ResidualGate& op, const Tensor& h,
                     const Tensor& branch, const Tensor& gate);
struct ResidualGradients {
  Tensor h, branch;
};
// Overwrites dgate [N] master.
ResidualGradients GatedResidualBackward(const OpContext& ctx, const ResidualGate& op,
                                        const Tensor& h, const Tensor& branch, const Tensor& gate,
                                        const Tensor& dout, const Tensor& dgate);

// x * sigmoid(gate).
Tensor SigmoidGate(const OpContext& ctx, const Tensor& x, const Tensor& gate);
// dx overwrites dout, dgate overwrites gate.
void SigmoidGateBackwardInPlace(const OpContext& ctx, const Tensor& x, const Tensor& gate,
                                const Tensor& dout);

// silu(gate) * up, or its clamped form.
Tensor Swiglu(const OpContext& ctx, const headwise::Swiglu& op, const Tensor& gate,
              const Tensor& up);
// dgate overwrites gate, dup overwrites up.
void SwigluBackwardInPlace(const OpContext& ctx, const headwise::Swiglu& op, const Tensor& gate,
                           const Tensor& up, const Tensor& dout);

// to <- from in to's dtype; the same shape. (master, compute) pairs only.
void Convert(const OpContext& ctx, const Tensor& from, const Tensor& to);
// Rows [from_begin, + count) of `from` into rows [to_begin, + count) of `to`; same width and dtype;
// the two may overlap.
void CopyRows(const OpContext& ctx, const Tensor& from, std::int64_t from_begin, const Tensor& to,
              std::int64_t to_begin, std::int64_t count);

// --- experts ---

// Where the tokens of a pass go, and in which rows their copies lie: all of expert 0, then all of
// expert 1, ...
struct Routing {
  Tensor weights;  // [T, k] master
  Tensor experts;  // [T, k] kI32
  ExpertGroups groups;
};

// logits [T, E] master; selection_bias [E] master or undefined.
Routing Route(const OpContext& ctx, const Router& op, const Tensor& logits,
              const Tensor& selection_bias);
// dlogits [T, E] master from dweights [T, k] master.
Tensor RouteBackward(const OpContext& ctx, const Router& op, const Tensor& logits,
                     const Routing& routing, const Tensor& dweights);
// Overwrites loads [E] master: the choices of each expert.
void CountLoads(const OpContext& ctx, const Routing& routing, const Tensor& loads);
// The auxiliary loss of kernels/moe/balancing.h; 0 on kMeta.
double BalancingLoss(const OpContext& ctx, const Tensor& logits, const Routing& routing);
// dlogits += the gradient of loss_scale times that loss.
void AddBalancingGradient(const OpContext& ctx, const Tensor& logits, const Routing& routing,
                          double loss_scale, const Tensor& dlogits);

// x [T, N] -> rows [T k, N].
Tensor DispatchTokens(const OpContext& ctx, const Routing& routing, const Tensor& x);
Tensor DispatchTokensBackward(const OpContext& ctx, const Routing& routing, const Tensor& drows);
// outputs [T k, N], weighted and summed -> [T, N].
Tensor CombineExperts(const OpContext& ctx, const Routing& routing, const Tensor& outputs);
struct ExpertGradients {
  Tensor outputs;  // [T k, N]
  Tensor weights;  // [T, k] master
};
ExpertGradients CombineExpertsBackward(const OpContext& ctx, const Routing& routing,
                                       const Tensor& outputs, const Tensor& dy);

// One linear layer per expert on its rows: x [T k, K], weight [E, N, K] compute, bias [E, N] master
// or undefined -> [T k, N].
Tensor ExpertLinear(const OpContext& ctx, const Routing& routing, const Tensor& x,
                    const Tensor& weight, const Tensor& bias);
Tensor ExpertLinearBackwardInput(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                                 const Tensor& weight);
// Overwrites dweight [E, N, K] master.
void ExpertLinearBackwardWeight(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                                const Tensor& x, const Tensor& dweight);
// Overwrites dbias [E, N] master.
void ExpertLinearBackwardBias(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                              const Tensor& dbias);

// --- loss ---

// Overwrites losses [T] master from z [T, V] master and targets [T], and dz [T, V] compute unless
// it is undefined.
void CrossEntropy(const OpContext& ctx, const LogitTransform& op, const Tensor& z,
                  absl::Span<const std::int32_t> targets, double loss_scale, const Tensor& losses,
                  const Tensor& dz);
// Adjacent-pair tree in double; 0 on kMeta.
double SumLosses(const OpContext& ctx, const Tensor& losses);
// z <- transformed logits; kF32 only.
void TransformLogitsInPlace(const OpContext& ctx, const LogitTransform& op, const Tensor& z);

}  // namespace ops
}  // namespace headwise

#endif  // HEADWISE_MODEL_OPS_H_
