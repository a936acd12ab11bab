#include "optim/testing/rank_model.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/tensor_layout.h"
#include "core/tensor/tensor.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

constexpr std::int64_t kWidth = 20, kFfn = 12, kVocabulary = 24, kExperts = 4, kExpertFfn = 8;

std::int64_t SizeOfAxis(const Mesh& mesh, const std::string& axis) {
  std::int64_t size = 1;
  const std::vector<int> axes = *mesh.Find(MeshView::kDense, axis);
  for (const int a : axes) {
    size *= mesh.Axes(MeshView::kDense)[static_cast<std::size_t>(a)].size;
  }
  return size;
}

void FillRandom(const Tensor& tensor, std::uint64_t seed) {
  const std::vector<float> values = RandomValues(tensor.size(), seed);
  std::copy(values.begin(), values.end(), tensor.data<float>());
}

}  // namespace

RankModel::RankModel(RankModelOptions options) : options_(std::move(options)) {
  const HeadGeometry& g = options_.geometry;
  const std::int64_t per_group = g.query_heads / g.kv_heads;
  const Factor head_dim = Factor::Whole("D", g.head_dim);
  const Dim packed = {{"G", g.kv_heads},
                      Factor::Sum("slots", {{"q", {{"M", per_group}}}, {"k", {}}, {"v", {}}}),
                      head_dim};
  const Dim heads = {{"G", g.kv_heads}, {"M", per_group}, head_dim};
  const Dim width = {{"N", kWidth}}, ffn = {{"F", kFfn}}, experts = {{"E", kExperts}},
            expert_ffn = {{"F", kExpertFfn}}, vocabulary = {{"V", kVocabulary}};
  const std::string rows = "S(0)@" + options_.axis, columns = "S(1)@" + options_.axis;
  const auto add = [&](const std::vector<Dim>& shape, const std::string& text) {
    const auto type =
        LayoutType::Declare(options_.mesh, shape, DType::kF32, *LayoutSpec::Parse(text));
    HW_CHECK(type.ok()) << type.status();
    types_.push_back(*type);
  };
  add({vocabulary, width}, rows);                    // embedding
  add({width}, options_.norm);                       // norm
  add({packed, width}, "S(0)@" + options_.kv_axis);  // wqkv
  add({packed}, "S(0)@" + options_.kv_axis);         // wqkv_bias
  add({heads, width}, rows);                         // gate
  add({width, heads}, columns);                      // wo
  add({experts, width}, options_.norm);              // router
  add({experts}, "");                                // balancing_bias
  add({ffn, width}, rows);                           // w1
  add({width, ffn}, columns);                        // w2
  add({experts, expert_ffn, width}, options_.experts_in);
  add({experts, width, expert_ffn}, options_.experts_out);
}

Parameters RankModel::Make(std::int64_t query_shares, std::int64_t kv_shares) const {
  const HeadGeometry& g = options_.geometry;
  const std::int64_t heads = g.query_heads / query_shares;
  const PackedQkv packed =
      *PackedQkv::Interleaved({g.query_heads / kv_shares, g.kv_heads / kv_shares, g.head_dim});
  Parameters parameters;
  const auto add = [&](const char* name, ParameterRole role) -> Parameter& {
    parameters.push_back(std::make_unique<Parameter>());
    parameters.back()->name = name;
    parameters.back()->role = role;
    return *parameters.back();
  };
  add("embedding", ParameterRole::kEmbedding);
  add("norm", ParameterRole::kNorm);
  add("wqkv", ParameterRole::kPackedQkv).head_blocks = HeadBlocks::FromPacked(packed);
  add("wqkv_bias", ParameterRole::kBias);
  add("gate", ParameterRole::kAttentionGate).head_blocks = *HeadBlocks::Separate(
      HeadRole::kGate, heads, g.head_dim, std::min(heads, g.query_heads / g.kv_heads));
  add("wo", ParameterRole::kAttentionOutput);
  add("router", ParameterRole::kRouter);
  add("balancing_bias", ParameterRole::kBalancingBias);
  add("w1", ParameterRole::kMlp);
  add("w2", ParameterRole::kMlp);
  add("experts_in", ParameterRole::kExpert);
  add("experts_out", ParameterRole::kExpert);
  return parameters;
}

Parameters RankModel::Whole() const {
  Parameters parameters = Make(1, 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Shape shape = types_[i].GlobalShape();
    parameters[i]->value = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    parameters[i]->gradient = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    FillRandom(parameters[i]->value, 100 + i);
  }
  return parameters;
}

Parameters RankModel::Share(std::int64_t rank, const Parameters& whole) const {
  Parameters parameters =
      Make(SizeOfAxis(options_.mesh, options_.axis), SizeOfAxis(options_.mesh, options_.kv_axis));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (Tensor Parameter::*tensor : {&Parameter::value, &Parameter::gradient}) {
      (*parameters[i]).*tensor =
          TensorLayout::Attach(LocalShare(types_[i], rank, (*whole[i]).*tensor), types_[i]);
    }
  }
  return parameters;
}

Parameters RankModel::Meta(std::int64_t rank) const {
  Parameters parameters =
      Make(SizeOfAxis(options_.mesh, options_.axis), SizeOfAxis(options_.mesh, options_.kv_axis));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->value = TensorLayout::Attach(
        Tensor::Empty(types_[i].LocalShape(rank), DType::kF32, Device::kMeta), types_[i]);
  }
  return parameters;
}

void RankModel::FillGradients(const Parameters& whole, std::uint64_t seed) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Tensor& gradient = whole[i]->gradient;
    FillRandom(gradient, 1000 * seed + i);
    if (whole[i]->role != ParameterRole::kBalancingBias) continue;
    for (std::int64_t e = 0; e < gradient.size(); ++e) {
      gradient.data<float>()[e] = static_cast<float>((7 * e + static_cast<std::int64_t>(seed)) % 5);
    }
  }
}

void RankModel::ShareGradients(std::int64_t rank, const Parameters& whole,
                               const Parameters& share) const {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Tensor part = LocalShare(types_[i], rank, whole[i]->gradient);
    std::copy_n(part.data<float>(), part.size(), share[i]->gradient.data<float>());
  }
}

std::vector<Parameter*> Pointers(const Parameters& parameters) {
  std::vector<Parameter*> pointers;
  for (const auto& p : parameters) pointers.push_back(p.get());
  return pointers;
}

}  // namespace headwise
