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
// head_dim, F ffn width.
#ifndef HEADWISE_MODEL_OPS_H_
#define HEADWISE_MODEL_OPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/thread_pool.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/gemm/gemm.h"
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
// overwritten, or undefined where no backward follows. Every row of q must lie in a segment.
Tensor Attention(const OpContext& ctx, const headwise::Attention& op,
                 absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                 const Tensor& log_sum_exp);
Qkv AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, const Qkv& qkv, const Tensor& o,
                      const Tensor& log_sum_exp, const Tensor& d_o);

// --- elementwise ---

// a + b.
Tensor Add(const OpContext& ctx, const Tensor& a, const Tensor& b);
// a <- a + b.
void AddInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b);
// The same for two matrices in the master dtype: gradients of a weight with two uses.
void AddMasterInPlace(const OpContext& ctx, const Tensor& a, const Tensor& b);

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
