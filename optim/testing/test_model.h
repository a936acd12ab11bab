// A made-up model for the optimizer's tests: small odd sizes, no forward pass.
//
//   TestModel model = MakeTestModel(Packing::kSectioned);
//   auto optimizer = Optimizer::Create(config, model.pointers());
//   model.FillGradients(/*seed=*/step);
#ifndef HEADWISE_OPTIM_TESTING_TEST_MODEL_H_
#define HEADWISE_OPTIM_TESTING_TEST_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/heads/packed_qkv.h"
#include "optim/parameter.h"

namespace headwise {

struct TestModel {
  std::vector<std::unique_ptr<Parameter>> parameters;

  std::vector<Parameter*> pointers() const;
  Parameter& Get(const std::string& name) const;  // checked
  // Random values that depend on the parameter's name and the seed; packed qkv rows head by head,
  // so that two models of different packing hold the same heads.
  void FillValues(std::uint64_t seed);
  void FillGradients(std::uint64_t seed);

  PackedQkv layout;
};

// 4 query heads, 2 kv heads, head_dim 6, model width 20. Values are filled with seed 0, gradients
// are zero. Names:
//   AdamW's   embedding, head, norm, wqkv_bias, router
//   Muon's    wqkv (8 head blocks), gate (no head blocks), wo, w1, w2, experts [3, 10, 20]
TestModel MakeTestModel(Packing packing);

// The elements of every parameter's value, by position in `parameters`.
std::vector<std::vector<float>> Values(const TestModel& model);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_TESTING_TEST_MODEL_H_
