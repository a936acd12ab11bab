// Every option of Muon, from the configuration to the weight: several steps against the same steps
// in double, where each block's update is U p(S) V^T by its singular value decomposition. Only the
// polynomial's coefficients are shared; which rows make a block, the scales and the momentum are
// written down again here.
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/double_standard_form.h"
#include "optim/defaults.h"
#include "optim/optimizer.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

// Sizes at which every scale sees tall, square and wide blocks.
constexpr std::int64_t kQueries = 4, kGroups = 2, kHeadDim = 8, kWidth = 16;
constexpr std::int64_t kSlots = kQueries + 2 * kGroups, kRows = kSlots * kHeadDim;
constexpr std::int64_t kHeadsPerBlock = 2;  // of HEAD_GROUP
constexpr std::int64_t kExperts = 2, kExpertRows = 24;
constexpr int kSteps = 3;

// Steps that differ, so that their order shows.
NewtonSchulzCoefficients CustomSteps() {
  return {.name = "custom",
          .steps = {{4, -8, 5}, {3.5f, -5, 2.25f}, {3, -3.25f, 1.25f}, {1.875f, -1.25f, 0.375f}},
          .restarts_after = {1, 3}};
}

const NewtonSchulzCoefficients& Steps(MuonCoefficients choice) {
  static const NewtonSchulzCoefficients custom = CustomSteps();
  return choice == QUINTIC5 ? Quintic5() : choice == POLAR_EXPRESS8 ? PolarExpress8() : custom;
}

// The head that lies in a slot of the fused weight, numbered q 0-3, k 4-5, v 6-7.
std::int64_t HeadInSlot(Packing packing, std::int64_t slot) {
  if (packing == Packing::kSectioned) return slot;
  constexpr std::int64_t kPerGroup = kQueries / kGroups;
  const std::int64_t group = slot / (kPerGroup + 2), place = slot % (kPerGroup + 2);
  if (place < kPerGroup) return group * kPerGroup + place;
  return (place == kPerGroup ? kQueries : kQueries + kGroups) + group;
}

// Which block a head belongs to.
std::int64_t BlockOfHead(MuonGranularity granularity, std::int64_t head) {
  const std::int64_t role = head < kQueries ? 0 : head < kQueries + kGroups ? 1 : 2;
  switch (granularity) {
    case HEAD:
      return head;
    case KV_GROUP:
      return role == 0 ? head / (kQueries / kGroups) : (head - kQueries) % kGroups;
    case PROJECTION:
      return role;
    case HEAD_GROUP:
      return head / kHeadsPerBlock;  // it divides the heads of every role
    default:
      return 0;
  }
}

double Scale(MuonScale scale, double rows, double cols) {
  switch (scale) {
    case ASPECT:
      return rows > cols ? std::sqrt(rows / cols) : 1;
    case MATCH_RMS_ADAMW:
      return 0.2 * std::sqrt(std::max(rows, cols));
    case SPECTRAL:
      return std::sqrt(rows / cols);
    default:
      return 1;
  }
}

// A weight in double and the rows of each of its blocks.
struct Expected {
  DoubleMatrix weight, momentum;
  std::vector<std::vector<std::int64_t>> blocks;
  double path = 0;  // the lengths of its updates, added up

  void Step(const MuonConfig& muon, const std::vector<float>& gradient) {
    const double beta = muon.momentum(), rate = muon.learning_rate();
    double squares = 0;
    for (const std::vector<std::int64_t>& rows : blocks) {
      const std::int64_t count = static_cast<std::int64_t>(rows.size());
      DoubleMatrix u{count, kWidth, std::vector<double>(count * kWidth)};
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < kWidth; ++j) {
          const double g = gradient[rows[i] * kWidth + j];
          double& m = momentum.at(rows[i], j);
          m = beta * m + (1 - beta) * g;
          u.at(i, j) = muon.disable_nesterov() ? m : (1 - beta) * g + beta * m;
        }
      }
      const DoubleMatrix o = PolynomialOfSingularValues(Steps(muon.coefficients()), u);
      const double factor = rate * Scale(muon.scale(), static_cast<double>(count), kWidth);
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < kWidth; ++j) {
          double& w = weight.at(rows[i], j);
          w = w * (1 - rate * muon.weight_decay()) - factor * o.at(i, j);
          squares += factor * o.at(i, j) * factor * o.at(i, j);
        }
      }
    }
    path += std::sqrt(squares);
  }
};

double Distance(const DoubleMatrix& a, const Tensor& b) {
  double squares = 0;
  for (std::int64_t i = 0; i < a.rows * a.cols; ++i) {
    const double difference = a.elements[i] - b.data<float>()[i];
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

// A fused weight and a batch of experts, with an optimizer and its counterpart in double.
class Trial {
 public:
  Trial(const OptimizerConfig& config, Packing packing) : config_(config), packing_(packing) {
    const PackedQkv layout = *PackedQkv::Create(packing, {kQueries, kGroups, kHeadDim});
    Add("wqkv", ParameterRole::kPackedQkv, {kRows, kWidth}).head_blocks =
        HeadBlocks::FromPacked(layout);
    Add("experts", ParameterRole::kExpert, {kExperts, kExpertRows, kWidth});
    std::map<std::int64_t, std::vector<std::int64_t>> blocks;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t head = HeadInSlot(packing, row / kHeadDim);
      blocks[BlockOfHead(config.muon().granularity(), head)].push_back(row);
    }
    for (auto& [block, rows] : blocks) expected_["wqkv"].blocks.push_back(std::move(rows));
    for (std::int64_t e = 0; e < kExperts; ++e) {
      std::vector<std::int64_t>& rows = expected_["experts"].blocks.emplace_back();
      for (std::int64_t r = 0; r < kExpertRows; ++r) rows.push_back(e * kExpertRows + r);
    }
  }

  // The worst distance of a weight from its counterpart, relative to the way it went.
  double Error() {
    std::vector<Parameter*> pointers;
    for (const auto& p : parameters_) {
      pointers.push_back(p.get());
      Expected& e = expected_[p->name];
      const std::int64_t rows = p->value.size() / kWidth;
      Fill(*p, 0, p->value);
      e.weight = {rows, kWidth, {p->value.data<float>(), p->value.data<float>() + rows * kWidth}};
      e.momentum = {rows, kWidth, std::vector<double>(rows * kWidth)};
    }
    auto optimizer = Optimizer::Create(config_, pointers);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    if (!optimizer.ok()) return 0;
    ThreadPool pool(1);
    for (int step = 0; step < kSteps; ++step) {
      for (const auto& p : parameters_) {
        Fill(*p, 1 + step, p->gradient);
        const float* g = p->gradient.data<float>();
        expected_[p->name].Step(config_.muon(), {g, g + p->gradient.size()});
      }
      EXPECT_FALSE((*optimizer)->Step(step, kSteps, pool).skipped);
    }
    double worst = 0;
    for (const auto& p : parameters_) {
      const Expected& e = expected_[p->name];
      EXPECT_GT(e.path, 0);
      const double error = Distance(e.weight, p->value) / e.path;
      if (!(error <= worst)) worst = error;  // a NaN too
    }
    return worst;
  }

 private:
  Parameter& Add(const std::string& name, ParameterRole role, const Shape& shape) {
    Parameter& p = *parameters_.emplace_back(std::make_unique<Parameter>());
    p.name = name;
    p.role = role;
    p.value = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    p.gradient = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    return p;
  }

  // Heads of unequal size; what a head holds does not depend on where it lies.
  void Fill(const Parameter& p, int seed, const Tensor& tensor) const {
    for (std::int64_t row = 0; row < tensor.size() / kWidth; ++row) {
      const bool fused = p.name == "wqkv";
      const std::int64_t head = fused ? HeadInSlot(packing_, row / kHeadDim) : row / kExpertRows;
      const std::int64_t place = fused ? row % kHeadDim : row % kExpertRows;
      const std::vector<float> values =
          RandomValues(kWidth, 100000 * seed + 1000 * head + 10 * place + (fused ? 1 : 2));
      float* const to = tensor.data<float>() + row * kWidth;
      for (std::int64_t c = 0; c < kWidth; ++c) {
        to[c] = std::ldexp(values[c], -static_cast<int>(head % 3));
      }
    }
  }

  OptimizerConfig config_;
  Packing packing_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::map<std::string, Expected> expected_;
};

OptimizerConfig Config(MuonGranularity granularity, MuonCoefficients coefficients) {
  OptimizerConfig config = DefaultOptimizerConfig();
  MuonConfig& muon = *config.mutable_muon();
  muon.set_learning_rate(0.25);
  muon.set_granularity(granularity);
  if (granularity == HEAD_GROUP) muon.set_head_group_size(kHeadsPerBlock);
  muon.set_coefficients(coefficients);
  if (coefficients == CUSTOM) {
    for (const QuinticStep& step : CustomSteps().steps) {
      for (const float c : {step.a, step.b, step.c}) muon.add_custom_coefficients(c);
    }
    for (const int step : CustomSteps().restarts_after) muon.add_custom_restarts_after(step);
  }
  return config;
}

// Of a Gaussian block, as in kernels/newton_schulz/accuracy_test.cc: square keys and values, square
// pairs of heads, and the rest.
double Gate(MuonGranularity granularity, MuonCoefficients coefficients) {
  if (granularity != PROJECTION && granularity != HEAD_GROUP) return 5e-6;
  return coefficients == POLAR_EXPRESS8 ? 2e-4 : 1e-4;
}

class MuonOptions : public testing::TestWithParam<MuonGranularity> {};

TEST_P(MuonOptions, AgreeWithSingularValuesInDouble) {
  std::map<std::string, double> worst;  // by coefficients
  for (const MuonCoefficients coefficients : {QUINTIC5, POLAR_EXPRESS8, CUSTOM}) {
    OptimizerConfig config = Config(GetParam(), coefficients);
    MuonConfig& muon = *config.mutable_muon();
    for (const MuonScale scale : {ASPECT, MATCH_RMS_ADAMW, SPECTRAL, UNIT}) {
      muon.set_scale(scale);
      for (const bool nesterov : {true, false}) {
        muon.set_disable_nesterov(!nesterov);
        for (const auto& [momentum, decay] : {std::pair(0.95, 0.0), {0.7, 0.1}}) {
          muon.set_momentum(momentum);
          muon.set_weight_decay(decay);
          for (const Packing packing : {Packing::kSectioned, Packing::kInterleavedPerKvGroup}) {
            const double error = Trial(config, packing).Error();
            EXPECT_LE(error, Gate(GetParam(), coefficients))
                << muon.ShortDebugString() << (packing == Packing::kSectioned ? ", sectioned" : "");
            double& w = worst[MuonCoefficients_Name(coefficients)];
            w = std::max(w, error);
          }
        }
      }
    }
  }
  for (const auto& [name, error] : worst) RecordProperty(name, absl::StrCat(error));
}

INSTANTIATE_TEST_SUITE_P(Granularities, MuonOptions,
                         testing::Values(HEAD, KV_GROUP, PROJECTION, HEAD_GROUP, WHOLE_MATRIX),
                         [](const auto& info) { return MuonGranularity_Name(info.param); });

}  // namespace
}  // namespace headwise
