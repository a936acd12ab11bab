// The launcher of a step: its launches in order.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/cuda/launchers.cuh"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

using muon_step::TableLayout;
using muon_step::UnitList;

absl::Status CheckMember(const char* name, const void* data) {
  if (data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("Muon: launch.", name, " is a null pointer, expected device memory"));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Muon: launch.", name, " is not at a multiple of 16 bytes"));
  }
  return absl::OkStatus();
}

// A step on its way: arguments, and what has been launched shows in nothing else.
template <typename G>
class Step {
 public:
  Step(const MuonStepPlan& plan, const MuonStepLaunch& launch) : plan_(plan), launch_(launch) {}

  absl::Status Enqueue() const {
    const TableLayout& layout = plan_.layout();
    const std::size_t bytes = layout.block_count * sizeof(BlockState);
    if (const cudaError_t error = cudaMemsetAsync(launch_.scratch, 0, bytes, launch_.stream);
        error != cudaSuccess) {
      return absl::InternalError(
          absl::StrCat("Muon: clearing scratch failed: ", cudaGetErrorString(error)));
    }
    int from = 0;  // of a tiled block's X
    for (std::size_t i = 0; i < plan_.segments().size(); ++i) {
      const MuonStepPlan::Segment segment = plan_.segments()[i];
      const bool last = i + 1 == plan_.segments().size();
      HW_RETURN_IF_ERROR(OnChip(muon_step::kSmallEdge, layout.small, segment, last));
      HW_RETURN_IF_ERROR(OnChip(muon_step::kLargeEdge, layout.large, segment, last));
      if (layout.tiled_rows.count == 0) continue;
      HW_RETURN_IF_ERROR(Tiled(segment, from, last));
      from = 1 - from;
    }
    return absl::OkStatus();
  }

 private:
  StepArguments Arguments(const UnitList& units) const {
    const TableLayout& layout = plan_.layout();
    const auto at = [&](std::int64_t offset) { return launch_.table + offset; };
    return {.blocks = reinterpret_cast<const BlockEntry*>(at(layout.blocks)),
            .ranges = reinterpret_cast<const RangeEntry*>(at(layout.ranges)),
            .units = reinterpret_cast<const Unit*>(at(layout.units)) + units.begin,
            .steps = reinterpret_cast<const QuinticStep*>(at(layout.steps)),
            .scalars = launch_.scalars,
            .states = reinterpret_cast<BlockState*>(launch_.scratch),
            .scratch = reinterpret_cast<float*>(launch_.scratch),
            .constants = plan_.constants()};
  }

  // One segment of the blocks whose chain is on chip: three launches.
  absl::Status OnChip(int edge, const TableLayout::OnChip& units, MuonStepPlan::Segment segment,
                      bool last) const {
    if (units.blocks.count == 0) return absl::OkStatus();
    const bool first = segment.begin == 0;
    const auto chunks = static_cast<unsigned>(units.chunks.count);
    const ApplyWay way = {.from_scratch = !first, .to_scratch = !last};
    if (plan_.mode() == MuonMode::kTensorCore) {
      return LaunchTensor<G>(edge,
                             {.of_chunks = Arguments(units.chunks),
                              .of_blocks = Arguments(units.blocks),
                              .chunks = chunks,
                              .blocks = static_cast<unsigned>(units.blocks.count)},
                             segment, way, launch_.stream);
    }
    HW_RETURN_IF_ERROR(
        LaunchGram<G>(edge, Arguments(units.chunks), chunks, !first, launch_.stream));
    HW_RETURN_IF_ERROR(LaunchChain<G>(edge, plan_.chain(), Arguments(units.blocks),
                                      static_cast<unsigned>(units.blocks.count), segment,
                                      launch_.stream));
    return LaunchApply<G>(edge, Arguments(units.chunks), chunks, way, launch_.stream);
  }

  // One segment of the others.
  absl::Status Tiled(MuonStepPlan::Segment segment, int from, bool last) const {
    using muon_step::kR;
    using muon_step::kW;
    using muon_step::kZ;
    const TableLayout& layout = plan_.layout();
    const bool first = segment.begin == 0;
    const StepArguments lower = Arguments(layout.tiled_lower);
    const auto tiles = static_cast<unsigned>(layout.tiled_lower.count);
    if (first) {
      HW_RETURN_IF_ERROR(LaunchTiledMomentum<G>(Arguments(layout.tiled_strips),
                                                static_cast<unsigned>(layout.tiled_strips.count),
                                                launch_.stream));
    }
    HW_RETURN_IF_ERROR(
        LaunchTiledGram(lower, tiles, from, first ? kZ : kR, /*scales=*/first, launch_.stream));
    if (first) {
      HW_RETURN_IF_ERROR(LaunchTiledNormalize(Arguments(layout.tiled_rows),
                                              static_cast<unsigned>(layout.tiled_rows.count),
                                              launch_.stream));
    }
    int q = muon_step::kQ, other_q = muon_step::kOtherQ;
    for (int n = segment.begin; n < segment.end; ++n) {
      const QuinticStep step = plan_.steps()[n];
      const bool begins = n == segment.begin, ends = n + 1 == segment.end;
      const TiledProduct z = {.of_square = true,
                              .left = kR,
                              .right = kR,
                              .addend = kR,
                              .out = kZ,
                              .copy = begins ? q : -1,
                              .factor = step.c,
                              .shift = step.b,
                              .a = step.a};
      const auto add = [&](int left, int right, int addend, int out) {
        return TiledProduct{.of_square = false,
                            .left = left,
                            .right = right,
                            .addend = addend,
                            .out = out,
                            .copy = -1,
                            .factor = step.a};
      };
      HW_RETURN_IF_ERROR(LaunchTiledProducts(lower, tiles, 1, z, z, launch_.stream));
      const TiledProduct next_q = add(kZ, q, q, other_q), w = add(kZ, kR, kR, kW);
      if (!begins) std::swap(q, other_q);
      if (!begins || !ends) {
        HW_RETURN_IF_ERROR(LaunchTiledProducts(lower, tiles, !begins && !ends ? 2 : 1,
                                               begins ? w : next_q, w, launch_.stream));
      }
      if (ends) break;
      const TiledProduct r = add(kW, kZ, kW, kR);
      HW_RETURN_IF_ERROR(LaunchTiledProducts(lower, tiles, 1, r, r, launch_.stream));
    }
    return LaunchTiledApply(
        Arguments(layout.tiled_columns), static_cast<unsigned>(layout.tiled_columns.count),
        {.from = from, .q = q, .first = first, .to_scratch = !last}, launch_.stream);
  }

  const MuonStepPlan& plan_;
  const MuonStepLaunch& launch_;
};

}  // namespace

absl::Status MuonStep(const MuonStepPlan& plan, const MuonStepLaunch& launch) {
  if (plan.layout().block_count == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(CheckMember("table", launch.table));
  HW_RETURN_IF_ERROR(CheckMember("scratch", launch.scratch));
  if (launch.scalars == nullptr) {
    return absl::InvalidArgumentError(
        "Muon: launch.scalars is a null pointer, expected device memory");
  }
  return plan.bf16_gradients() ? Step<BFloat16>(plan, launch).Enqueue()
                               : Step<float>(plan, launch).Enqueue();
}

}  // namespace headwise::HW_CUDA_NAMESPACE
