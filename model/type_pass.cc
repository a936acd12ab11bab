#include "model/type_pass.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "core/base/status_macros.h"
#include "core/parallel/tensor_layout.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"
#include "model/sharding.h"

namespace headwise {
namespace {

// Tokens that nothing reads.
TokenBatch MetaBatch(std::int64_t tokens) {
  const auto size = static_cast<std::size_t>(tokens);
  TokenBatch batch = {.inputs = std::vector<std::int32_t>(size),
                      .targets = std::vector<std::int32_t>(size),
                      .positions = std::vector<std::int64_t>(size),
                      .segments = {}};
  if (tokens > 0) batch.segments.push_back({.num_queries = tokens, .num_keys = tokens});
  return batch;
}

std::int64_t DataRanks(const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") return axis.size;
  }
  return 1;
}

}  // namespace

absl::StatusOr<TypePassReport> TypePass(const ModelConfig& config, const TypePassOptions& options,
                                        LayoutChecker& checker) {
  Sharding sharding(checker, options.rank);
  sharding.SetTokens(options.groups > 0 ? options.groups : DataRanks(checker.mesh()),
                     options.length);
  DecoderOptions decoder_options;
  decoder_options.compute = options.compute;
  decoder_options.device = Device::kMeta;
  decoder_options.gemm = GemmBackend::kContract;  // computes nothing, takes every dtype
  decoder_options.sharding = &sharding;
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      Decoder::Create(config, decoder_options));
  ThreadPool pool(1);
  (void)decoder->ForwardBackward(MetaBatch(sharding.local_tokens()), 1.0, pool);

  TypePassReport report;
  for (const Parameter* parameter : decoder->parameters()) {
    report.parameters.push_back({.name = parameter->name,
                                 .role = parameter->role,
                                 .layout = LayoutOf(parameter->value),
                                 .bytes = parameter->value.bytes()});
  }
  report.weight_copy_bytes = decoder->weight_copy_bytes();
  report.activation_bytes = decoder->peak_activation_bytes();
  return report;
}

std::vector<std::int64_t> RankKinds(const LayoutChecker& checker) {
  std::vector<LayoutType> uneven;
  for (const auto& [path, type] : checker.leaves()) {
    if (type.defined() && !type.uniform()) uneven.push_back(type);
  }
  std::vector<std::int64_t> kinds = {0};
  if (uneven.empty()) return kinds;
  const auto shapes = [&](std::int64_t rank) {
    std::vector<std::int64_t> all;
    for (const LayoutType& type : uneven) {
      const std::vector<std::int64_t> shape = type.LocalShape(rank);
      all.insert(all.end(), shape.begin(), shape.end());
    }
    return all;
  };
  std::set<std::vector<std::int64_t>> seen = {shapes(0)};
  for (std::int64_t rank = 1; rank < checker.mesh().size(); ++rank) {
    if (seen.insert(shapes(rank)).second) kinds.push_back(rank);
  }
  return kinds;
}

}  // namespace headwise
