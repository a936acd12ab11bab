// Bytes and operations of kernels, by formula, by emulation, and of a whole step.
#include "model/bench/kernel_cases.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/emulation/emulation.h"
#include "kernels/swiglu/cuda.h"
#include "model/bench/cpu_device.h"
#include "model/bench/operands.h"
#include "model/bench/traffic.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "model/qkv_preparation.h"
#include "model/train/run_config.h"
#include "optim/groups.h"

namespace headwise {
namespace {

RunConfig Preset(const std::string& name) { return ResolveRunConfig(*LoadPreset(name)); }

// Of docs/performance.md.
TEST(TrafficTest, QkvBytesAreThoseOfTheKernels) {
  const QkvTraffic muse = {.tokens = 1,
                           .query_heads = 128,
                           .kv_heads = 16,
                           .head_dim = 64,
                           .norm = true,
                           .element = 2,
                           .between = 2};
  EXPECT_EQ(PrepareQkvBytes(muse), 40960);
  EXPECT_EQ(PrepareQkvBackwardBytes(muse), 59392);
  EXPECT_EQ(UnfusedQkvBytes(muse), 114688);
  // The unfused CUDA kernels keep the split q and k, which these split again.
  EXPECT_EQ(UnfusedQkvBackwardBytes(muse), 133120 + 2 * (128 + 16) * 64 * 2);
  QkvTraffic plain = muse;
  plain.norm = false;
  EXPECT_EQ(PrepareQkvBytes(plain), 40960);
  EXPECT_EQ(PrepareQkvBackwardBytes(plain), 40960);  // q and k of packed are not needed
  EXPECT_EQ(UnfusedQkvBytes(plain), 114688 - 36864);
  QkvTraffic late = muse;  // Rounding::kOnlyAtEnd
  late.between = 4;
  EXPECT_EQ(UnfusedQkvBytes(late), 114688 + 36864);
}

// The bytes that an emulated launch moves to and from the named regions, all of them together.
class CountedBytes {
 public:
  template <typename T>
  void Region(const std::string& name, std::vector<T>& values) {
    names_.push_back(name);
    session_.AddRegion(name, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)),
                       emulation::Access::kReadWrite);
  }
  std::int64_t Sum() const {
    std::int64_t sum = 0;
    for (const std::string& name : names_) {
      sum += session_.traffic(name).loads + session_.traffic(name).stores;
    }
    return sum;
  }

 private:
  emulation::Session session_{{.count_traffic = true}};
  std::vector<std::string> names_;
};

TEST(TrafficTest, FormulasAreWhatEmulatedKernelsMove) {
  constexpr std::int64_t kRows = 16, kWidth = 64;
  std::vector<BFloat16> a(kRows * kWidth), b(a), c(a), d(a), e(a);
  const auto rows = [](std::vector<BFloat16>& v) {
    return RowSpan<BFloat16>(v.data(), kRows, kWidth);
  };
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c);
    ASSERT_TRUE(cuda_emulated::Add<BFloat16>(rows(a), rows(b), rows(c), nullptr).ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(3, kRows, kWidth, 2));
  }
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c);
    ASSERT_TRUE(
        cuda_emulated::SwigluForward<BFloat16>({}, rows(a), rows(b), rows(c), nullptr).ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(3, kRows, kWidth, 2));
  }
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c), bytes.Region("d", d);
    bytes.Region("e", e);
    ASSERT_TRUE(cuda_emulated::SigmoidGateBackward<BFloat16>(rows(a), rows(b), rows(c), rows(d),
                                                             rows(e), nullptr)
                    .ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(5, kRows, kWidth, 2));
  }
  {
    std::vector<float> w(256, 1), m(256), v(256), g(256, 1);
    std::vector<AdamWFactors<float>> factors = {MakeAdamWFactors<float>({}, 1, 1)};
    emulation::Session session({.count_traffic = true});
    std::int64_t sum = 0;
    std::map<std::string, std::vector<float>*> all = {{"w", &w}, {"m", &m}, {"v", &v}, {"g", &g}};
    for (const auto& [name, values] : all) {
      session.AddRegion(name, values->data(), 256 * 4, emulation::Access::kReadWrite);
    }
    session.AddRegion("factors", factors.data(), sizeof(factors[0]), emulation::Access::kRead);
    const AdamWTensors tensors = {absl::MakeSpan(w), absl::MakeSpan(m), absl::MakeSpan(v), g};
    const absl::StatusOr<AdamWPlan> plan = AdamWPlan::Create({&tensors, 1});
    ASSERT_TRUE(plan.ok()) << plan.status();
    session.AddRegion("table", plan->table().data(),
                      static_cast<std::int64_t>(plan->table().size()), emulation::Access::kRead);
    ASSERT_TRUE(
        cuda_emulated::AdamWStep(*plan, {.table = plan->table().data(), .factors = factors.data()})
            .ok());
    for (const auto& [name, values] : all) {
      sum += session.traffic(name).loads + session.traffic(name).stores;
    }
    EXPECT_EQ(sum, AdamWBytes(256));
  }
}

TEST(TrafficTest, VisiblePairsAreThoseOfTheMask) {
  for (const std::int64_t window : {0, 1, 3, 9, 20}) {
    std::int64_t pairs = 0;
    for (std::int64_t q = 0; q < 9; ++q) {
      for (std::int64_t k = 0; k <= q; ++k) pairs += window == 0 || q - k < window;
    }
    EXPECT_EQ(VisiblePairs(9, window), pairs) << window;
  }
}

// A prompt's forward pass is a third of a training step, but for the head, which sees one token.
TEST(TrafficTest, PrefillIsTheForwardPass) {
  for (const char* name : {"muse_demo", "muse_spark_tiny", "llama3_tiny"}) {
    const ModelConfig model = Preset(name).model();
    constexpr std::int64_t kTokens = 100;
    const double head = 2.0 * static_cast<double>(model.vocab_size() * model.dim());
    EXPECT_NEAR(PrefillFlops(model, kTokens),
                kTokens * TrainingFlopsPerToken(model, kTokens) / 3 - (kTokens - 1) * head, 1)
        << name;
  }
}

TEST(TrafficTest, DecodingReadsWeightsOnceAndEveryRowsKeys) {
  const ModelConfig model = Preset("muse_demo").model();  // windows 64, 64, 64, 0; 2 kv heads of 64
  const auto weights = static_cast<double>(CountParameters(model).matmul);
  // Layers 0 ... 5 of 6: counted from the last, so 4 with a window and 2 without.
  const double keys = 2.0 * 128 * (4 * 64 + 2 * 1001);
  EXPECT_EQ(DecodeBytes(model, 3, 1000, 2), 2 * (weights + 3 * keys));
}

TEST(KernelCasesTest, ProductsAreThoseOfATrainingStep) {
  for (const char* name :
       {"muse_demo", "muse_17m", "muse_spark_tiny", "muse_glimmer_tiny", "gpt_oss_tiny"}) {
    const RunConfig config = Preset(name);
    constexpr std::int64_t kTokens = 64;
    double products = 0, attention = 0;
    for (const KernelCase& c : StepKernels(config, kTokens, true)) {
      (c.name.rfind("attention", 0) == 0 ? attention : products) +=
          c.flops * static_cast<double>(c.calls);
    }
    const ModelConfig& model = config.model();
    double routers = 0;
    for (std::int64_t l = 0; l < model.num_layers(); ++l) {
      if (LayerHasExperts(model, l)) {
        routers += static_cast<double>(model.ffn().moe().num_experts() * model.dim());
      }
    }
    const auto matmul = static_cast<double>(CountParameters(model).matmul);
    EXPECT_EQ(products, 6 * kTokens * (matmul - routers)) << name;
    const std::int64_t length = std::min(kTokens, config.training().sequence_length());
    const double whole = kTokens * TrainingFlopsPerToken(model, length);
    // The backward pass computes the scores again: 14 products in place of 12.
    EXPECT_NEAR(attention, (whole - 6 * kTokens * matmul) * 14 / 12, 1e-6 * whole) << name;
  }
}

// What is timed is what the model does: Qwen3 rounds before it multiplies by the norm's weight.
TEST(KernelCasesTest, QkvIsPreparedAsInTheModel) {
  const std::unique_ptr<BenchDevice> device = MakeCpuBenchDevice(1);
  for (const char* name : {"muse_spark_tiny", "qwen3_tiny", "gpt_oss_tiny"}) {
    const RunConfig config = Preset(name);
    const auto operands = MakeQkv(*device, device->Context(config), config, 4);
    ASSERT_TRUE(operands.ok()) << operands.status();
    const QkvPreparation& op = *(*operands)->op;
    const QkvPreparation model = QkvPreparationOf(config.model(), 0, op.rotary);
    EXPECT_EQ(op.norm, model.norm) << name;
    EXPECT_EQ(op.rounding, model.rounding) << name;
    EXPECT_EQ(op.query_scale, model.query_scale) << name;
    EXPECT_EQ(op.epsilon, model.epsilon) << name;
    EXPECT_NE(op.rotary, nullptr) << name;
  }
}

TEST(KernelCasesTest, OptimizerStepsEveryMatrix) {
  for (const char* name : {"muse_demo", "muse_17m", "muse_spark_tiny", "muse_glimmer_tiny",
                           "llama3_tiny", "gpt_oss_tiny"}) {
    const RunConfig config = Preset(name);
    const auto meta = *Decoder::Create(config.model(), {.device = Device::kMeta});
    std::vector<const Parameter*> parameters(meta->parameters().begin(), meta->parameters().end());
    std::int64_t muon = 0, adamw_matrices = 0;
    const auto groups = *AssignGroups(parameters, Granularity::kWholeMatrix, 0);
    for (const GroupedParameter& group : groups) {
      if (group.blocks.has_value()) muon += group.assignment.elements;
    }
    for (const Parameter* p : parameters) {
      const bool matrix = p->value.rank() == 2 && !IsHiddenMatrix(p->role);
      if (matrix && p->role != ParameterRole::kBias) adamw_matrices += p->value.size();
    }
    std::map<std::string, std::int64_t> bytes;
    for (const KernelCase& c : StepKernels(config, 16, true)) bytes[c.name] = c.bytes;
    EXPECT_EQ(bytes["muon_step"], MuonStepBytes(muon)) << name;
    EXPECT_EQ(bytes["adamw"], AdamWBytes(adamw_matrices)) << name;
  }
}

TEST(KernelCasesTest, LargestComesFirstAndUnfusedOnlyIfAskedFor) {
  const RunConfig config = Preset("muse_spark_tiny");
  const std::vector<KernelCase> cases = StepKernels(config, 64, true);
  std::set<std::string> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(names.insert(cases[i].name).second) << cases[i].name << " is there twice";
    if (i == 0) continue;
    EXPECT_GE(cases[i - 1].calls * cases[i - 1].bytes, cases[i].calls * cases[i].bytes);
  }
  EXPECT_EQ(names.count("unfused_qkv.forward"), 1);
  for (const KernelCase& c : StepKernels(config, 64, false)) {
    EXPECT_EQ(c.name.find("unfused"), std::string::npos) << c.name;
  }
}

}  // namespace
}  // namespace headwise
