#include "tests/hf/golden_case.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/io/safetensors.h"
#include "model/hf/tensor_copy.h"
#include "model/kv_cache.h"

namespace headwise {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  HW_CHECK(value.ok()) << value.status();
  return *std::move(value);
}

std::vector<double> Doubles(const SafetensorsFile& file, const std::string& name) {
  const Tensor tensor = OrDie(file.Read(name));
  const float* x = tensor.data<float>();
  return {x, x + tensor.size()};
}

void CopyByName(Decoder& from, Decoder& to) {
  for (const Parameter* parameter : to.parameters()) {
    for (const Parameter* source : from.parameters()) {
      if (source->name != parameter->name || source->value.shape() != parameter->value.shape()) {
        continue;
      }
      std::copy_n(source->value.data<float>(), source->value.size(),
                  parameter->value.data<float>());
    }
  }
}

}  // namespace

std::unique_ptr<Decoder> GoldenCase::NewDecoder(const DecoderOptions& options) const {
  std::unique_ptr<Decoder> decoder = OrDie(Decoder::Create(folder.model(), options));
  const absl::Status status = folder.LoadWeights(folder.model(), decoder->parameters());
  HW_CHECK(status.ok()) << status;
  ThreadPool pool(1);
  decoder->WeightsChanged(pool);
  return decoder;
}

std::unique_ptr<Decoder> GoldenCase::NewDecoder(const ModelConfig& model,
                                                const DecoderOptions& options) const {
  const std::unique_ptr<Decoder> original = NewDecoder(options);
  std::unique_ptr<Decoder> decoder = OrDie(Decoder::Create(model, options));
  CopyByName(*original, *decoder);
  ThreadPool pool(1);
  decoder->WeightsChanged(pool);
  return decoder;
}

TokenBatch GoldenCase::Batch() const {
  TokenBatch batch;
  for (const GoldenTokens& document : documents) {
    const auto length = static_cast<std::int64_t>(document.size());
    const auto begin = static_cast<std::int64_t>(batch.inputs.size());
    batch.segments.push_back(
        {.query_begin = begin, .num_queries = length, .key_begin = begin, .num_keys = length});
    for (std::int64_t i = 0; i < length; ++i) {
      batch.inputs.push_back(document[i]);
      batch.targets.push_back(i + 1 < length ? document[i + 1] : kIgnoredTarget);
      batch.positions.push_back(i);
    }
  }
  return batch;
}

const std::vector<std::string>& GoldenFamilies() {
  static const auto* families = new std::vector<std::string>{
      "muse_glimmer", "muse_spark",   "llama3",    "llama3_scaled", "mistral",
      "qwen3",        "qwen3_window", "qwen3_moe", "gpt_oss"};
  return *families;
}

std::string GoldenDirectory(const std::string& name) {
  const char* sources = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  HW_CHECK(sources != nullptr && workspace != nullptr) << "run by bazel test";
  return absl::StrCat(sources, "/", workspace, "/tests/golden/data/", name);
}

GoldenCase OpenGolden(const std::string& name) {
  const std::string directory = GoldenDirectory(name);
  GoldenCase golden = {.folder = OrDie(HfFolder::Open(directory))};
  const SafetensorsFile file = OrDie(SafetensorsFile::Open(directory + "/golden.safetensors"));
  for (int i = 0; file.Find(absl::StrCat("tokens.", i)) != nullptr; ++i) {
    const Tensor tokens = OrDie(file.Read(absl::StrCat("tokens.", i)));
    const std::int32_t* t = tokens.data<std::int32_t>();
    golden.documents.emplace_back(t, t + tokens.size());
    golden.logits.push_back(Doubles(file, absl::StrCat("logits.", i)));
    golden.targets += tokens.size() - 1;
  }
  HW_CHECK(!golden.documents.empty()) << name;
  if (file.Find("loss") != nullptr) golden.loss = Doubles(file, "loss")[0];
  constexpr char kGradient[] = "grad.";
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name.rfind(kGradient, 0) != 0) continue;
    golden.gradients[tensor.name.substr(sizeof(kGradient) - 1)] = Doubles(file, tensor.name);
  }
  return golden;
}

std::vector<float> Logits(Decoder& decoder, const GoldenTokens& tokens,
                          const std::vector<std::int64_t>& chunks, ThreadPool& pool) {
  const auto cache = OrDie(decoder.NewCache(1, static_cast<std::int64_t>(tokens.size())));
  std::vector<float> logits;
  std::int64_t seen = 0;
  for (const std::int64_t chunk : chunks) {
    const std::vector<GoldenTokens> next = {
        GoldenTokens(tokens.begin() + seen, tokens.begin() + seen + chunk)};
    seen += chunk;
    const Tensor last = decoder.Extend(*cache, next, pool);
    logits.insert(logits.end(), last.data<float>(), last.data<float>() + last.size());
  }
  return logits;
}

std::vector<float> Logits(Decoder& decoder, const GoldenTokens& tokens, ThreadPool& pool) {
  return Logits(decoder, tokens, std::vector<std::int64_t>(tokens.size(), 1), pool);
}

std::map<std::string, std::vector<double>> GradientsAsTheirs(const HfFolder& folder,
                                                             Decoder& decoder) {
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter* parameter : decoder.parameters()) parameters[parameter->name] = parameter;
  std::map<std::string, std::vector<double>> gradients;
  for (const auto& [name, shape] : folder.map().tensors()) {
    const Tensor theirs = Tensor::Zeros(shape, DType::kF32, Device::kCpu);
    for (const TensorPiece* piece : folder.map().PiecesOf(name)) {
      const auto found = parameters.find(piece->parameter);
      HW_CHECK(found != parameters.end()) << piece->parameter;
      CopyOut(*piece, found->second->gradient.data<float>(), theirs);
    }
    const float* x = theirs.data<float>();
    gradients[name] = {x, x + theirs.size()};
  }
  return gradients;
}

}  // namespace headwise
