// ParameterStore: makes and owns a model's parameters: their names, roles, shapes, initial
// distributions, and the low-precision copies of the weights that matrix products read.
//
//   ParameterStore store({.compute = DType::kBF16});
//   LinearWeight w2 = store.AddLinear("layers.0.ffn.w2", ParameterRole::kMlp,
//                                     {{{"N", 512}}, {{"F", 1408}}}, Init::Truncated(0.02));
//   store.Initialize(seed);
//   store.RefreshCopies(ctx);
//   ops::Linear(ctx, x, w2.compute, {});
//   ops::LinearBackwardWeight(ctx, dy, x, w2.parameter->gradient);
//
// Shapes are of the whole parameter, in named factors (core/parallel/factored_dim.h). With sharding
// a parameter is a leaf of the plan, and its tensors are this rank's share; a drawn share has the
// elements of the whole.
#ifndef HEADWISE_MODEL_PARAMETER_STORE_H_
#define HEADWISE_MODEL_PARAMETER_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/heads/head_blocks.h"
#include "core/parallel/factored_dim.h"
#include "core/tensor/tensor.h"
#include "model/ops.h"
#include "model/sharding.h"
#include "optim/parameter.h"

namespace headwise {

// How a parameter's elements are drawn (model/random.h).
struct Init {
  enum class Kind { kConstant, kNormal, kTruncatedNormal };
  Kind kind = Kind::kConstant;
  double value = 0;  // the constant, or the standard deviation before truncation

  static Init Constant(double value) { return {Kind::kConstant, value}; }
  static Init Normal(double std) { return {Kind::kNormal, std}; }
  // Truncated at 3 standard deviations.
  static Init Truncated(double std) { return {Kind::kTruncatedNormal, std}; }
};

// A weight that multiplies activations: the master parameter, and the tensor that products read,
// of the same shape in the compute dtype. They are one tensor unless the compute dtype is kBF16.
struct LinearWeight {
  Parameter* parameter = nullptr;
  Tensor compute;
};

// The gradients of a part of a model, at the end of its backward: each is compared with the dual of
// its parameter and goes into the checker's gradient plan. Loads of balancing biases must be those
// of all tokens. Nothing without sharding.
void NoteGradients(Sharding* sharding, absl::Span<Parameter* const> parameters);

class ParameterStore {
 public:
  struct Options {
    DType compute = DType::kF32;
    Device device = Device::kCpu;
    Sharding* sharding = nullptr;  // may be null; not owned
    Gpu* gpu = nullptr;            // of Device::kCuda; not owned
    bool gradients = true;         // without, those of parameters stay undefined
  };
  // Values and gradients are kF64 if compute is, else kF32. Values start at zero.
  explicit ParameterStore(const Options& options);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Head blocks are of this rank's rows: made of their number.
  using BlocksOfRows = std::function<HeadBlocks(std::int64_t rows)>;

  // The pointer stays valid as long as the store. Names are unique (checked).
  Parameter* Add(const std::string& name, ParameterRole role, const std::vector<Dim>& shape,
                 Init init, const BlocksOfRows& head_blocks = nullptr);
  // The norm weight of q or k heads, [head_dim], with a gradient for each of this rank's kv groups.
  Parameter* AddHeadNorm(const std::string& name, std::int64_t local_kv_heads,
                         std::int64_t head_dim, Init init);
  // weight [out, in], or one per expert [experts, out, in].
  LinearWeight AddLinear(const std::string& name, ParameterRole role, const std::vector<Dim>& shape,
                         Init init, const BlocksOfRows& head_blocks = nullptr);

  // In the order of creation.
  const std::vector<Parameter*>& parameters() const { return pointers_; }
  Sharding* sharding() const { return sharding_; }

  // Draws every value, on the host; nothing on kMeta. A parameter's values depend on the seed, its name and its
  // Init only, and not on how it is shared out.
  void Initialize(std::uint64_t seed);
  // Rounds the master values into the low-precision copies, if there are any.
  void RefreshCopies(const OpContext& ctx);
  std::int64_t copy_bytes() const;

 private:
  Tensor Zeros(const Shape& shape, DType dtype) const;
  // Of a gradient; undefined without gradients.
  Tensor Gradient(const Shape& shape) const;

  DType compute_;
  DType master_;
  Device device_;
  Sharding* sharding_;
  Gpu* gpu_;
  bool gradients_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> pointers_;
  std::vector<Init> inits_;                        // as parameters_
  std::vector<std::pair<Tensor, Tensor>> copies_;  // (master, compute)
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_PARAMETER_STORE_H_
