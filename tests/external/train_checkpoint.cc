// Makes a small checkpoint as other trainers write it (config.json, model.safetensors), asks Headwise
// which of its weights Muon takes and how they are cut, fits them to another set of weights with
// Muon per head, and writes the checkpoint back. The loss, sum of (w - target)^2 / 2, stands in for a
// model: its gradient is w - target.
//
//   bazel run //:train_checkpoint            in a temporary directory
//   bazel run //:train_checkpoint -- DIR     trains the checkpoint in DIR

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_writer.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "optim/checkpoint_muon.h"
#include "optim/muon.h"

namespace headwise_example {
namespace {

using headwise::Tensor;

// 4 query heads and 2 key/value heads of 16 elements in one fused projection, as Falcon has it.
constexpr char kConfig[] = R"({
  "model_type": "falcon", "new_decoder_architecture": true, "hidden_size": 64,
  "num_attention_heads": 4, "num_kv_heads": 2, "num_hidden_layers": 1, "vocab_size": 32
})";

Tensor Random(const headwise::Shape& shape, std::uint32_t seed) {
  Tensor tensor = Tensor::Zeros(shape, headwise::DType::kF32, headwise::Device::kCpu);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    tensor.data<float>()[i] = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-33f;
  }
  return tensor;
}

absl::Status MakeCheckpoint(const std::string& directory) {
  std::ofstream(directory + "/config.json") << kConfig;
  const std::string layer = "transformer.h.0.";
  std::uint32_t seed = 1;
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, shape] : std::map<std::string, headwise::Shape>{
           {"transformer.word_embeddings.weight", {32, 64}},
           {layer + "self_attention.query_key_value.weight", {128, 64}},
           {layer + "self_attention.dense.weight", {64, 64}},
           {layer + "mlp.dense_h_to_4h.weight", {256, 64}},
           {layer + "mlp.dense_4h_to_h.weight", {64, 256}},
           {layer + "ln_attn.weight", {64}},
           {layer + "ln_mlp.weight", {64}},
           {"transformer.ln_f.weight", {64}}}) {
    tensors.push_back({name, Random(shape, ++seed)});
  }
  return headwise::WriteSafetensors(directory + "/model.safetensors", tensors);
}

absl::Status Train(const std::string& directory) {
  std::ifstream file(directory + "/config.json");
  if (!file) return absl::NotFoundError(absl::StrCat(directory, " has no config.json"));
  std::stringstream config;
  config << file.rdbuf();
  HW_ASSIGN_OR_RETURN(const headwise::SafetensorsFile weights,
                      headwise::SafetensorsFile::Open(directory + "/model.safetensors"));
  std::vector<headwise::WeightShape> shapes;
  for (const headwise::SafetensorsTensor& tensor : weights.tensors()) {
    shapes.push_back({tensor.name, tensor.shape});
  }
  HW_ASSIGN_OR_RETURN(const headwise::MuonPlan plan,
                      headwise::MuonPlan::Create(config.str(), shapes, {}));

  std::vector<std::pair<std::string, Tensor>> values;
  std::vector<Tensor> targets, gradients;
  std::vector<headwise::MuonParameter> parameters;
  for (const headwise::PlannedWeight& weight : plan.weights()) {
    const std::string& name = weight.layout.name;
    absl::PrintF("%-50s %-14s %s\n", name, headwise::Name(weight.group),
                 weight.blocks.has_value() ? absl::StrCat(weight.blocks->size(), " blocks") : "");
    HW_ASSIGN_OR_RETURN(Tensor value, weights.Read(name));
    values.push_back({name, value});
    if (weight.group == headwise::OptimizerGroup::kAdamW) continue;
    targets.push_back(Random(value.shape(), 1000 + static_cast<std::uint32_t>(values.size())));
    gradients.push_back(Random(value.shape(), 0));
    HW_ASSIGN_OR_RETURN(headwise::MuonParameter parameter,
                        plan.Parameter(name, value.data<float>(), gradients.back().data<float>()));
    parameters.push_back(std::move(parameter));
  }
  const std::vector<headwise::MuonParameter> trained = parameters;
  HW_ASSIGN_OR_RETURN(headwise::Muon muon,
                      headwise::Muon::Create({.learning_rate = 0.1}, std::move(parameters)));

  headwise::ThreadPool pool(2);
  constexpr int kSteps = 60;
  double first = 0, loss = 0;
  for (int step = 0; step <= kSteps; ++step) {
    loss = 0;
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const float* value = trained[i].value.data;
      const float* target = targets[i].data<float>();
      float* gradient = gradients[i].data<float>();
      for (std::int64_t j = 0; j < gradients[i].size(); ++j) {
        gradient[j] = value[j] - target[j];
        loss += 0.5 * double{gradient[j]} * gradient[j];
      }
    }
    if (step == 0) first = loss;
    if (step % 10 == 0) absl::PrintF("step %3d  loss %.4f\n", step, loss);
    muon.Step(pool, 1.0 - static_cast<double>(step) / (kSteps + 1));
  }
  if (!(loss < 0.25 * first)) return absl::InternalError("the loss did not fall to a quarter");
  return headwise::WriteSafetensors(directory + "/model.safetensors", values);
}

absl::Status Run(int argc, char** argv) {
  if (argc > 1) return Train(argv[1]);
  std::string directory = (std::filesystem::temp_directory_path() / "checkpoint_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return absl::InternalError("no temporary directory");
  HW_RETURN_IF_ERROR(MakeCheckpoint(directory));
  const absl::Status status = Train(directory);
  std::filesystem::remove_all(directory);
  return status;
}

}  // namespace
}  // namespace headwise_example

int main(int argc, char** argv) {
  const absl::Status status = headwise_example::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
