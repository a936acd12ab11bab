// Checkpoints as tests need them: a config.json of the published form, tensor names and shapes, and
// what each weight must resolve to. Every family is made from numbers: the published ones, small
// ones, random ones.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_TESTING_CHECKPOINTS_H_
#define HEADWISE_OPTIM_ARCHITECTURES_TESTING_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/heads/head_blocks.h"
#include "optim/architectures/decline_reason.h"
#include "optim/architectures/resolve.h"

namespace headwise {

// A family uses the numbers that it has.
struct Numbers {
  std::int64_t width = 24;  // where it is not heads * head_dim
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 4;
  std::int64_t nope = 6, rope = 2, value_dim = 5, q_rank = 14, kv_rank = 10;  // latent attention
  std::int64_t linear_key_heads = 2, linear_value_heads = 6;                  // linear attention
  std::int64_t linear_key_dim = 5, linear_value_dim = 3;
  std::int64_t vision_heads = 3, vision_head_dim = 4;
};

// kv_heads divides heads, linear_key_heads divides linear_value_heads.
Numbers RandomNumbers(std::mt19937& rng);

struct ExpectedHeads {
  HeadRole role;
  std::int64_t heads;
  std::int64_t size;  // rows (or columns) of each
};

struct ExpectedWeight {
  WeightShape weight;
  std::optional<DeclineReason> declined;  // else:
  std::string layout = {};
  std::vector<ExpectedHeads> heads = {};
  BlockAxis axis = BlockAxis::kRows;
  bool transposed_storage = false;
};

struct TestCheckpoint {
  std::string name;
  std::string config;  // the text of config.json
  std::vector<ExpectedWeight> weights;

  std::vector<WeightShape> Shapes() const;
};

struct TestFamily {
  std::string name;
  TestCheckpoint (*make)(const std::string& model_type, const Numbers& numbers);
  std::string model_type;
  std::vector<Numbers> published;  // of well-known checkpoints
};

// At least one for every row of docs/head_blocks.md.
const std::vector<TestFamily>& TestFamilies();

// Every other model_type, whose tensors look like those of some family above. No published numbers.
const std::vector<TestFamily>& TestKin();

// The family's checkpoint with these numbers, named after both.
TestCheckpoint Make(const TestFamily& family, const Numbers& numbers, const std::string& size);

// Published and small numbers of every family.
std::vector<TestCheckpoint> AllTestCheckpoints();

// The family by its name (checked).
const TestFamily& FindTestFamily(const std::string& name);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_TESTING_CHECKPOINTS_H_
