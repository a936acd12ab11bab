#include "model/test_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/comm/thread_ranks.h"
#include "core/parallel/tensor_layout.h"
#include "model/rank_pass.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

std::int64_t Targets(const TokenBatch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](std::int32_t target) { return target != kIgnoredTarget; });
}

DecoderOptions Options(DType compute, Sharding* sharding) {
  DecoderOptions options;
  options.compute = compute;
  options.gemm = GemmBackend::kContract;
  options.sharding = sharding;
  return options;
}

std::vector<double> Doubles(const Tensor& tensor) {
  Parameter holder = {.name = "", .gradient = tensor};
  return GradientOf(holder);
}

// This rank's shares of whole weights.
void TakeShares(Decoder& decoder, const std::vector<Parameter*>& whole, std::int64_t rank,
                ThreadPool& pool) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Tensor& value = decoder.parameters()[i]->value;
    const LayoutType layout = LayoutOf(value);
    if (!layout.defined()) continue;
    const Tensor share = LocalShare(layout, rank, whole[i]->value);
    std::memcpy(value.raw_data(), share.raw_data(), static_cast<std::size_t>(share.bytes()));
  }
  decoder.WeightsChanged(pool);
}

// Runs one rank. The outcome is rank 0's.
absl::Status RunRank(const ModelConfig& config, const ShardedLayout& layout,
                     const TokenBatch& batch, DType compute, bool relaxed,
                     const std::vector<Parameter*>& whole, Communicator& comm,
                     PassOutcome& outcome) {
  HW_ASSIGN_OR_RETURN(const MeshRanks ranks, MeshRanks::Create(layout.mesh, comm));
  LayoutChecker checker(layout.mesh, layout.plan);
  checker.set_relaxed(relaxed);
  Sharding sharding(checker, ranks);
  std::int64_t groups = 1;
  for (const MeshAxis& axis : layout.mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") groups = axis.size;
  }
  sharding.SetTokens(groups, static_cast<std::int64_t>(batch.inputs.size()) / groups);
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      Decoder::Create(config, Options(compute, &sharding)));
  const auto mistakes = [&] {
    std::vector<std::string> all;
    for (const LayoutMistake& mistake : checker.mistakes()) all.push_back(mistake.ToString());
    return all;
  };
  ThreadPool pool(1);
  TakeShares(*decoder, whole, comm.rank(), pool);
  if (!sharding.inputs().tokens.defined()) {
    if (comm.rank() == 0) outcome.mistakes = mistakes();
    return absl::FailedPreconditionError("the tokens cannot be shared out so");
  }
  const double scale = 1.0 / static_cast<double>(Targets(batch));
  const double local = decoder->ForwardBackward(ShareOfBatch(batch, sharding), scale, pool);
  if (comm.rank() == 0) outcome.mistakes = mistakes();
  HW_RETURN_IF_ERROR(sharding.status());
  const std::size_t planned = checker.gradient_plan().gradients().size();
  const auto trained =
      static_cast<std::size_t>(std::count_if(whole.begin(), whole.end(), [](const Parameter* p) {
        return p->role != ParameterRole::kBalancingBias;
      }));
  if (planned != trained) {
    return absl::FailedPreconditionError(
        absl::StrCat("shapes do not fit: the pass gave ", planned, " of ", trained, " gradients"));
  }
  HW_RETURN_IF_ERROR(ReduceGradients(sharding, decoder->parameters()));
  HW_ASSIGN_OR_RETURN(const double loss, SumOverTokens(sharding, local));
  HW_ASSIGN_OR_RETURN(const double auxiliary, SumOverRanks(sharding, decoder->auxiliary_loss()));
  std::map<std::string, std::vector<double>> gradients;
  for (const Parameter* parameter : decoder->parameters()) {
    const LayoutType type = LayoutOf(parameter->value);
    if (!type.defined()) return absl::FailedPreconditionError("a parameter has no share");
    HW_ASSIGN_OR_RETURN(const Tensor gradient, Assemble(ranks, type, parameter->gradient));
    gradients[parameter->name] = Doubles(gradient);
  }
  if (comm.rank() == 0) {
    outcome.loss = loss;
    outcome.auxiliary = auxiliary;
    outcome.gradients = std::move(gradients);
  }
  return absl::OkStatus();
}

}  // namespace

TokenBatch GroupedBatch(std::int64_t groups, std::int64_t length, std::int64_t vocab_size) {
  std::vector<std::int64_t> documents;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = length / 3 + g % 2;
    documents.push_back(first);
    documents.push_back(length - first);
  }
  return RandomBatch(documents, vocab_size);
}

PassOutcome PassOnOneRank(const ModelConfig& config, const TokenBatch& batch, DType compute) {
  const auto decoder = RandomDecoder(config, Options(compute, nullptr));
  ThreadPool pool(1);
  PassOutcome outcome;
  outcome.loss = decoder->ForwardBackward(batch, 1.0 / static_cast<double>(Targets(batch)), pool);
  outcome.auxiliary = decoder->auxiliary_loss();
  for (const Parameter* parameter : decoder->parameters()) {
    outcome.gradients[parameter->name] = GradientOf(*parameter);
  }
  return outcome;
}

PassOutcome PassOnRanks(const ModelConfig& config, const ShardedLayout& layout,
                        const TokenBatch& batch, DType compute, bool relaxed) {
  const auto whole = RandomDecoder(config, Options(compute, nullptr));
  PassOutcome outcome;
  const absl::Status status =
      RunThreadRanks(static_cast<int>(layout.mesh.size()), [&](Communicator& comm) {
        return RunRank(config, layout, batch, compute, relaxed, whole->parameters(), comm, outcome);
      });
  if (!status.ok()) outcome.failure = std::string(status.message());
  return outcome;
}

Difference LargestDifference(const PassOutcome& actual, const PassOutcome& expected) {
  Difference largest;
  const auto see = [&](double size, const std::string& where) {
    if (size > largest.size || std::isnan(size)) largest = {size, where};
  };
  see(std::abs(actual.loss - expected.loss) / std::abs(expected.loss), "loss");
  see(std::abs(actual.auxiliary - expected.auxiliary) /
          std::max(std::abs(expected.auxiliary), 1e-300),
      "auxiliary loss");
  for (const auto& [name, gradient] : expected.gradients) {
    const auto found = actual.gradients.find(name);
    HW_CHECK(found != actual.gradients.end()) << name;
    HW_CHECK_EQ(found->second.size(), gradient.size()) << name;
    see(RelativeDifference(found->second, gradient), name);
  }
  return largest;
}

}  // namespace headwise
