#include "optim/testing/test_model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/check.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

constexpr std::int64_t kWidth = 20;

std::uint64_t SeedOf(const std::string& name, std::uint64_t seed) {
  for (const char c : name) seed = seed * 131 + static_cast<unsigned char>(c);
  return seed;
}

// Heads of wqkv in (role, head) order: what lies in slot `slot`.
std::uint64_t IndexOfHead(const PackedQkv& layout, std::int64_t slot) {
  const QkvSlot content = layout.SlotAt(slot);
  return static_cast<std::uint64_t>(content.role) * 100 + static_cast<std::uint64_t>(content.head);
}

void Fill(const PackedQkv& layout, const std::string& name, std::uint64_t seed,
          const Tensor& tensor) {
  if (name != "wqkv") {
    const std::vector<float> values = RandomValues(tensor.size(), SeedOf(name, seed));
    std::copy(values.begin(), values.end(), tensor.data<float>());
    return;
  }
  const std::int64_t head_elements = layout.head_dim() * tensor.dim(1);
  for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
    const std::uint64_t head = IndexOfHead(layout, slot);
    const std::vector<float> values = RandomValues(head_elements, SeedOf(name, seed) + 7919 * head);
    std::copy(values.begin(), values.end(), tensor.data<float>() + slot * head_elements);
  }
}

}  // namespace

std::vector<Parameter*> TestModel::pointers() const {
  std::vector<Parameter*> pointers;
  for (const auto& p : parameters) pointers.push_back(p.get());
  return pointers;
}

Parameter& TestModel::Get(const std::string& name) const {
  const auto it = std::find_if(parameters.begin(), parameters.end(),
                               [&](const auto& p) { return p->name == name; });
  HW_CHECK(it != parameters.end()) << name;
  return **it;
}

void TestModel::FillValues(std::uint64_t seed) {
  for (const auto& p : parameters) Fill(layout, p->name, 2 * seed, p->value);
}

void TestModel::FillGradients(std::uint64_t seed) {
  for (const auto& p : parameters) Fill(layout, p->name, 2 * seed + 1, p->gradient);
}

TestModel MakeTestModel(Packing packing) {
  TestModel model{{},
                  *PackedQkv::Create(packing, {.query_heads = 4, .kv_heads = 2, .head_dim = 6})};
  const auto add = [&](const char* name, ParameterRole role, const Shape& shape) -> Parameter& {
    model.parameters.push_back(std::make_unique<Parameter>());
    Parameter& p = *model.parameters.back();
    p.name = name;
    p.role = role;
    p.value = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    p.gradient = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    return p;
  };
  add("embedding", ParameterRole::kEmbedding, {11, kWidth});
  add("norm", ParameterRole::kNorm, {kWidth});
  add("wqkv", ParameterRole::kPackedQkv, {model.layout.row_width(), kWidth}).head_blocks =
      HeadBlocks::FromPacked(model.layout);
  add("wqkv_bias", ParameterRole::kBias, {model.layout.row_width()});
  add("gate", ParameterRole::kAttentionGate, {24, kWidth});
  add("wo", ParameterRole::kAttentionOutput, {kWidth, 24});
  add("router", ParameterRole::kRouter, {3, kWidth});
  add("experts", ParameterRole::kExpert, {3, 10, kWidth});
  add("w1", ParameterRole::kMlp, {31, kWidth});
  add("w2", ParameterRole::kMlp, {kWidth, 31});
  add("head", ParameterRole::kOutputHead, {11, kWidth});
  model.FillValues(0);
  return model;
}

std::vector<std::vector<float>> Values(const TestModel& model) {
  std::vector<std::vector<float>> values;
  for (const auto& p : model.parameters) {
    values.emplace_back(p->value.data<float>(), p->value.data<float>() + p->value.size());
  }
  return values;
}

}  // namespace headwise
