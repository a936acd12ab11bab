#include "model/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/tensor_layout.h"
#include "model/gpu/tensors.h"
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

ParameterStore::ParameterStore(const Options& options)
    : compute_(options.compute),
      master_(options.compute == DType::kF64 ? DType::kF64 : DType::kF32),
      device_(options.device),
      sharding_(options.sharding),
      gpu_(options.gpu),
      gradients_(options.gradients) {}

Tensor ParameterStore::Zeros(const Shape& shape, DType dtype) const {
  return device_ == Device::kCuda ? ZerosOnGpu(*gpu_, shape, dtype)
                                  : Tensor::Zeros(shape, dtype, device_);
}

Tensor ParameterStore::Gradient(const Shape& shape) const {
  if (!gradients_) return Tensor();
  return device_ == Device::kCuda ? EmptyOnGpu(*gpu_, shape, master_)
                                  : Tensor::Empty(shape, master_, device_);
}

Parameter* ParameterStore::Add(const std::string& name, ParameterRole role,
                               const std::vector<Dim>& dims, Init init,
                               const BlocksOfRows& head_blocks) {
  for (const Parameter* other : pointers_) HW_CHECK_NE(other->name, name);
  Shape shape;
  for (const Dim& dim : dims) shape.push_back(SizeOf(dim));
  LayoutType layout;
  if (sharding_ != nullptr) {
    LayoutChecker& checker = sharding_->checker();
    // A balancing bias has loads where others have a gradient.
    layout = role == ParameterRole::kBalancingBias ? checker.Input(name, dims, master_)
                                                   : checker.Parameter(name, dims, master_);
    if (layout.defined()) {
      shape = layout.LocalShape(sharding_->rank());
      if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
        checker.Note(LayoutError(name, "", {{"parameter", layout}},
                                 absl::StrCat("rank ", sharding_->rank(), " has nothing of it")));
        layout = LayoutType();
        for (std::size_t i = 0; i < dims.size(); ++i) shape[i] = SizeOf(dims[i]);
      }
    }
  }
  parameters_.push_back(std::make_unique<Parameter>(
      Parameter{.name = name,
                .role = role,
                .value = TensorLayout::Attach(Zeros(shape, master_), layout),
                .gradient = Gradient(shape),
                .per_group_gradient = Tensor(),
                .head_blocks = std::nullopt}));
  Parameter* parameter = parameters_.back().get();
  if (head_blocks) {
    parameter->head_blocks = head_blocks(shape[0]);
    HW_CHECK_EQ(parameter->head_blocks->axis_size(), shape[0]) << name;
  }
  pointers_.push_back(parameter);
  inits_.push_back(init);
  return parameter;
}

Parameter* ParameterStore::AddHeadNorm(const std::string& name, std::int64_t local_kv_heads,
                                       std::int64_t head_dim, Init init) {
  Parameter* parameter = Add(name, ParameterRole::kNorm, {{Factor::Whole("D", head_dim)}}, init);
  parameter->per_group_gradient = Gradient({local_kv_heads, head_dim});
  return parameter;
}

LinearWeight ParameterStore::AddLinear(const std::string& name, ParameterRole role,
                                       const std::vector<Dim>& shape, Init init,
                                       const BlocksOfRows& head_blocks) {
  Parameter* parameter = Add(name, role, shape, init, head_blocks);
  LinearWeight weight = {.parameter = parameter, .compute = parameter->value};
  if (compute_ == master_) return weight;
  weight.compute = Zeros(parameter->value.shape(), compute_);
  copies_.emplace_back(parameter->value, weight.compute);
  if (sharding_ == nullptr) return weight;
  // A leaf is never a sum that is still to be made, or it would be refused here.
  const auto layout = Cast(LayoutOf(parameter->value), compute_);
  if (layout.ok()) {
    weight.compute = TensorLayout::Attach(weight.compute, *layout);
  } else {
    sharding_->checker().Note(Annotate(layout.status(), name));
  }
  return weight;
}

void ParameterStore::Initialize(std::uint64_t seed) {
  if (device_ == Device::kMeta) return;
  for (std::size_t i = 0; i < pointers_.size(); ++i) {
    const std::uint64_t key = RandomKey(seed, pointers_[i]->name);
    const Tensor& value = pointers_[i]->value;
    const LayoutType layout = LayoutOf(value);
    const bool share = layout.defined() && value.shape() != layout.GlobalShape();
    const bool on_gpu = device_ == Device::kCuda;
    const Tensor whole =
        share || on_gpu
            ? Tensor::Empty(share ? layout.GlobalShape() : value.shape(), master_, Device::kCpu)
            : value;
    if (master_ == DType::kF64) {
      Draw<double>(inits_[i], key, whole);
    } else {
      Draw<float>(inits_[i], key, whole);
    }
    if (share) {
      const Tensor local = LocalShare(layout, sharding_->rank(), whole);
      std::memcpy(value.raw_data(), local.raw_data(), static_cast<std::size_t>(local.bytes()));
    } else if (on_gpu) {
      const absl::Status uploaded = Upload(*gpu_, whole, value);
      HW_CHECK(uploaded.ok()) << uploaded;
    }
  }
}

void ParameterStore::RefreshCopies(const OpContext& ctx) {
  for (const auto& [master, copy] : copies_) ops::Convert(ctx, master, copy);
}

std::int64_t ParameterStore::copy_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [master, copy] : copies_) bytes += copy.bytes();
  return bytes;
}

void NoteGradients(Sharding* sharding, absl::Span<Parameter* const> parameters) {
  if (sharding == nullptr) return;
  LayoutChecker& checker = sharding->checker();
  for (Parameter* parameter : parameters) {
    const LayoutType gradient = LayoutOf(parameter->gradient);
    if (parameter->role != ParameterRole::kBalancingBias) {
      checker.ParameterGradient(parameter->name, gradient);
    } else if (const LayoutType bias = LayoutOf(parameter->value);
               gradient.defined() && bias.defined() && !(gradient == bias)) {
      const LayoutChecker::Module module = checker.Enter(parameter->name);
      checker.Note(LayoutError(
          "balancing", "", {{"loads", gradient}, {"bias", bias}},
          "the loads that move a balancing bias must be those of all tokens, on every rank that "
          "has the bias"));
    }
    // The next backward must derive it anew.
    parameter->gradient = TensorLayout::Attach(parameter->gradient, LayoutType());
  }
}

}  // namespace headwise
