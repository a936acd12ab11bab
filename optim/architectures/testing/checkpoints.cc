#include "optim/architectures/testing/checkpoints.h"

#include "core/base/check.h"
#include "optim/architectures/testing/families.h"

namespace headwise {

Numbers RandomNumbers(std::mt19937& rng) {
  const auto draw = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  Numbers n;
  n.width = draw(1, 90);
  n.kv_heads = draw(1, 6);
  n.heads = n.kv_heads * draw(1, 6);
  n.head_dim = draw(1, 20);
  n.nope = draw(1, 12);
  n.rope = draw(1, 8);
  n.value_dim = draw(1, 12);
  n.q_rank = draw(1, 30);
  n.kv_rank = draw(1, 30);
  n.linear_key_heads = draw(1, 5);
  n.linear_value_heads = n.linear_key_heads * draw(1, 4);
  n.linear_key_dim = draw(1, 9);
  n.linear_value_dim = draw(1, 9);
  n.vision_heads = draw(1, 6);
  n.vision_head_dim = draw(1, 9);
  return n;
}

std::vector<WeightShape> TestCheckpoint::Shapes() const {
  std::vector<WeightShape> shapes;
  for (const ExpectedWeight& expected : weights) shapes.push_back(expected.weight);
  return shapes;
}

const std::vector<TestFamily>& TestFamilies() {
  static const auto* const families = [] {
    auto* all = new std::vector<TestFamily>;
    for (std::vector<TestFamily> (*some)() :
         {SeparateTestFamilies, FusedTestFamilies, HybridTestFamilies, MultimodalTestFamilies}) {
      for (TestFamily& family : some()) all->push_back(std::move(family));
    }
    return all;
  }();
  return *families;
}

const std::vector<TestFamily>& TestKin() {
  static const auto* const kin = [] {
    auto* all = new std::vector<TestFamily>(KinTestFamilies());
    for (TestFamily& family : MultimodalKinTestFamilies()) all->push_back(std::move(family));
    return all;
  }();
  return *kin;
}

TestCheckpoint Make(const TestFamily& family, const Numbers& numbers, const std::string& size) {
  TestCheckpoint checkpoint = family.make(family.model_type, numbers);
  checkpoint.name = family.name + ", " + size;
  return checkpoint;
}

std::vector<TestCheckpoint> AllTestCheckpoints() {
  std::vector<TestCheckpoint> all;
  for (const TestFamily& family : TestFamilies()) {
    all.push_back(Make(family, Numbers(), "small"));
    for (const Numbers& numbers : family.published) {
      all.push_back(Make(family, numbers, "published"));
    }
  }
  return all;
}

const TestFamily& FindTestFamily(const std::string& name) {
  for (const TestFamily& family : TestFamilies()) {
    if (family.name == name) return family;
  }
  HW_CHECK(false) << "no test family " << name;
  return TestFamilies().front();
}

}  // namespace headwise
