#include "model/parameter_store.h"

#include "core/base/check.h"
#include "model/random.h"

namespace headwise {
namespace {

template <typename T>
void Draw(const Init& init, std::uint64_t key, const Tensor& value) {
  T* x = value.data<T>();
  const std::int64_t n = value.size();
  switch (init.kind) {
    case Init::Kind::kConstant:
      for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(init.value);
      return;
    case Init::Kind::kNormal:
      for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(init.value * Normal(key, i));
      return;
    case Init::Kind::kTruncatedNormal:
      for (std::int64_t i = 0; i < n; ++i) {
        x[i] = static_cast<T>(init.value * TruncatedNormal(key, i));
      }
      return;
  }
}

}  // namespace

ParameterStore::ParameterStore(DType compute, Device device)
    : compute_(compute),
      master_(compute == DType::kF64 ? DType::kF64 : DType::kF32),
      device_(device) {}

Parameter* ParameterStore::Add(const std::string& name, ParameterRole role, Shape shape, Init init,
                               std::optional<HeadBlocks> head_blocks) {
  for (const Parameter* other : pointers_) HW_CHECK_NE(other->name, name);
  if (head_blocks.has_value()) HW_CHECK_EQ(head_blocks->axis_size(), shape[0]) << name;
  parameters_.push_back(
      std::make_unique<Parameter>(Parameter{.name = name,
                                            .role = role,
                                            .value = Tensor::Zeros(shape, master_, device_),
                                            .gradient = Tensor::Empty(shape, master_, device_),
                                            .per_group_gradient = Tensor(),
                                            .head_blocks = std::move(head_blocks)}));
  pointers_.push_back(parameters_.back().get());
  inits_.push_back(init);
  return pointers_.back();
}

Parameter* ParameterStore::AddHeadNorm(const std::string& name, std::int64_t kv_heads,
                                       std::int64_t head_dim, Init init) {
  Parameter* parameter = Add(name, ParameterRole::kNorm, {head_dim}, init);
  parameter->per_group_gradient = Tensor::Empty({kv_heads, head_dim}, master_, device_);
  return parameter;
}

LinearWeight ParameterStore::AddLinear(const std::string& name, ParameterRole role,
                                       std::int64_t out, std::int64_t in, Init init,
                                       std::optional<HeadBlocks> head_blocks) {
  return WithCopy(Add(name, role, {out, in}, init, std::move(head_blocks)));
}

LinearWeight ParameterStore::AddExperts(const std::string& name, std::int64_t experts,
                                        std::int64_t out, std::int64_t in, Init init) {
  return WithCopy(Add(name, ParameterRole::kExpert, {experts, out, in}, init));
}

LinearWeight ParameterStore::WithCopy(Parameter* parameter) {
  LinearWeight weight = {.parameter = parameter, .compute = parameter->value};
  if (compute_ != master_) {
    weight.compute = Tensor::Zeros(parameter->value.shape(), compute_, device_);
    copies_.emplace_back(parameter->value, weight.compute);
  }
  return weight;
}

void ParameterStore::Initialize(std::uint64_t seed) {
  if (device_ == Device::kMeta) return;
  for (std::size_t i = 0; i < pointers_.size(); ++i) {
    const std::uint64_t key = RandomKey(seed, pointers_[i]->name);
    if (master_ == DType::kF64) {
      Draw<double>(inits_[i], key, pointers_[i]->value);
    } else {
      Draw<float>(inits_[i], key, pointers_[i]->value);
    }
  }
}

void ParameterStore::RefreshCopies(const OpContext& ctx) {
  for (const auto& [master, copy] : copies_) ops::Convert(ctx, master, copy);
}

}  // namespace headwise
