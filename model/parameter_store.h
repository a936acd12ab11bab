// ParameterStore: makes and owns a model's parameters: their names, roles, shapes, initial
// distributions, and the low-precision copies of the weights that matrix products read.
//
//   ParameterStore store(DType::kBF16, Device::kCpu);
//   LinearWeight w2 = store.AddLinear("layers.0.ffn.w2", ParameterRole::kMlp, /*out=*/512,
//                                     /*in=*/1408, Init::Truncated(0.02));
//   store.Initialize(seed);
//   store.RefreshCopies(ctx);
//   ops::Linear(ctx, x, w2.compute, {});
//   ops::LinearBackwardWeight(ctx, dy, x, w2.parameter->gradient);
#ifndef HEADWISE_MODEL_PARAMETER_STORE_H_
#define HEADWISE_MODEL_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/heads/head_blocks.h"
#include "core/tensor/tensor.h"
#include "model/ops.h"
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

class ParameterStore {
 public:
  // Values and gradients are kF64 if compute is, else kF32. Values start at zero.
  ParameterStore(DType compute, Device device);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // The pointer stays valid as long as the store. Names are unique (checked).
  Parameter* Add(const std::string& name, ParameterRole role, Shape shape, Init init,
                 std::optional<HeadBlocks> head_blocks = std::nullopt);
  // The norm weight of q or k heads, [head_dim], with a gradient per kv group.
  Parameter* AddHeadNorm(const std::string& name, std::int64_t kv_heads, std::int64_t head_dim,
                         Init init);
  // weight [out, in].
  LinearWeight AddLinear(const std::string& name, ParameterRole role, std::int64_t out,
                         std::int64_t in, Init init,
                         std::optional<HeadBlocks> head_blocks = std::nullopt);
  // One weight [out, in] per expert: [experts, out, in], ParameterRole::kExpert.
  LinearWeight AddExperts(const std::string& name, std::int64_t experts, std::int64_t out,
                          std::int64_t in, Init init);

  // In the order of creation.
  const std::vector<Parameter*>& parameters() const { return pointers_; }

  // Draws every value; nothing on kMeta. A parameter's values depend on the seed, its name and its
  // Init only.
  void Initialize(std::uint64_t seed);
  // Rounds the master values into the low-precision copies, if there are any.
  void RefreshCopies(const OpContext& ctx);

 private:
  // The tensor that products read of a parameter.
  LinearWeight WithCopy(Parameter* parameter);

  DType compute_;
  DType master_;
  Device device_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> pointers_;
  std::vector<Init> inits_;                        // as parameters_
  std::vector<std::pair<Tensor, Tensor>> copies_;  // (master, compute)
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_PARAMETER_STORE_H_
