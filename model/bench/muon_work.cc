#include "model/bench/muon_work.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/status_macros.h"
#include "core/heads/head_blocks.h"
#include "model/decoder.h"
#include "optim/parameter.h"

namespace headwise {

absl::StatusOr<std::shared_ptr<MuonWork>> MakeMuonWork(const RunConfig& config,
                                                       BenchDevice& device) {
  HW_ASSIGN_OR_RETURN(OptimizerSettings settings, ResolveSettings(config.optimizer()));
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> meta,
                      Decoder::Create(config.model(), {.device = Device::kMeta}));
  const std::vector<const Parameter*> parameters(meta->parameters().begin(),
                                                 meta->parameters().end());
  HW_ASSIGN_OR_RETURN(std::vector<GroupedParameter> groups,
                      AssignGroups(parameters, settings.granularity, settings.head_group_size));
  auto work = std::make_shared<MuonWork>(std::move(groups), std::move(settings));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<HeadBlocks>& blocks = work->groups[i].blocks;
    if (!blocks.has_value()) continue;
    const std::int64_t width = parameters[i]->value.dim(-1);
    const Shape shape = {parameters[i]->value.size() / width, width};
    for (const Tensor& t : {device.Random(shape, DType::kF32), device.Zeros(shape, DType::kF32),
                            device.Random(shape, DType::kF32)}) {
      work->tensors.push_back(t);
    }
    const Tensor* t = &work->tensors.back() - 2;
    work->weights.push_back({.weight = t[0].Rows<float>(),
                             .momentum = t[1].Rows<float>(),
                             .gradient = t[2].Rows<const float>(),
                             .blocks = &*blocks});
  }
  return work;
}

}  // namespace headwise
