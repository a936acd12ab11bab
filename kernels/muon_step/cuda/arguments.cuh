// What the CUDA kernels of muon_step are launched with. Plain data, passed by value; pointers are
// device memory.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_ARGUMENTS_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_ARGUMENTS_CUH_

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/cuda/table.h"

namespace headwise::HW_CUDA_NAMESPACE {

using muon_step::BlockEntry;
using muon_step::BlockState;
using muon_step::kChunk;
using muon_step::kStage;
using muon_step::kTileSide;
using muon_step::RangeEntry;
using muon_step::Unit;

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Of every kernel.
struct StepArguments {
  const BlockEntry* blocks;
  const RangeEntry* ranges;
  const Unit* units;  // of this launch
  const QuinticStep* steps;
  const MuonStepScalars* scalars;
  BlockState* states;
  float* scratch;
  MuonStepPlan::Constants constants;
};

// Of blocks of up to 128 rows: where X comes from and O goes to.
struct ApplyWay {
  bool from_scratch;
  bool to_scratch;
};

// Of blocks of up to 128 rows on tensor cores.
struct TensorLaunch {
  StepArguments of_chunks, of_blocks;
  unsigned chunks, blocks;
};

// Of the others: one symmetric product and what becomes of it, matrices by their numbers:
//   of_square  out = fma(factor, left right, shift addend), and `copy`, unless < 0, = out + a I
//   else       out = fma(factor, addend, left right)
struct TiledProduct {
  bool of_square;
  int left, right, addend, out, copy;
  float factor, shift, a;
};

// Where X comes from and O goes to: X[from], and X[1 - from] or, the last time, the weight. Q is the
// matrix `q`; `first` that X is u.
struct TiledApplyWay {
  int from, q;
  bool first, to_scratch;
};

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_ARGUMENTS_CUH_
