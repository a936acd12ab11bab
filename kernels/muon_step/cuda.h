// muon_step on NVIDIA GPUs: one Muon update of many weights in a few launches whose number depends
// neither on how many weights and blocks there are nor on their sizes. Two builds of one .cu text:
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/muon_step:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/muon_step:cuda_emulated)
//
// Both return the bits of MuonStepReference (docs/numerics.md), for any mix of weights; or, asked for
// MuonMode::kTensorCore, what is within an error bound of the same polynomial: see below.
//
// What does not change from step to step is planned once, on the host: addresses, blocks, and all
// hyperparameters but those of MuonStepScalars. A launch then allocates nothing, waits for nothing
// and reads what does change from device memory: it can be captured in a CUDA graph and replayed.
//
//   HW_ASSIGN_OR_RETURN(const MuonStepPlan plan, MuonStepPlan::Create<float>(hyper, weights));
//   // Once: plan.table() to device memory, and plan.scratch_bytes() of it, uninitialised.
//   // Each step: the scalars, in device memory; then
//   HW_RETURN_IF_ERROR(cuda::MuonStep(plan, {.stream = stream, .table = table,
//                                            .scalars = scalars, .scratch = scratch}));
//
// Blocks X [d, n], d <= n, fall into three classes by d; a step launches only those that occur:
//
//   d            chain runs in                              launches of quintic5, polar_express8
//   up to 64     51.3 KiB of shared memory                              3    9
//   65 to 128    198.5 KiB as squares (sm_90 and newer), or             3    9
//                97.3 KiB as packed triangles (sm_80)
//   above        the scratch, a launch for each product                18   29
//
// The first two: chunk partials of the Gram matrix of u, made as it is read; the chain, a thread
// block for each block; O = (Q s) X with momentum, decay and the write. Each restart of the
// coefficients adds three. The third: products in tiles of 64 x 64, by all multiprocessors. One fill,
// of 8 bytes a block, comes first.
//
// Bytes an element of the first two: gradient and momentum read twice, momentum written, weight read
// and written: 28 with fp32 gradients, 24 with bf16. Apart from these, and from the cache for the
// most part: Gram partials, d / 120 bytes an element written and d / 128 read, and Q s, d / 64 read.
// A set with restarts writes and reads X besides. Tiled blocks keep X in the scratch and read it once
// for each 64 rows.
//
// Rows whose addresses and strides are multiples of 16 bytes (8 of bf16 gradients), in blocks whose
// ranges of columns are multiples of four, move in vectors of four elements; others one by one.
// Which way shows in no bit.
//
// On tensor cores (MuonMode::kTensorCore) the products of blocks of up to 128 rows are mma.sync of
// halves with fp32 sums, sm_80 and newer: Gram matrix, chain and O. Each fp32 operand is two halves
// (half_split.h), each product three; X, R, Z, W and Q are scaled by the power of two of their largest
// element, X's Gram matrix chunk by chunk. Larger blocks, and those of MuonChainMemory::kScratch, are
// computed as in contract mode, with its bits. Momentum, decay, write, launches and capture are those of
// contract mode; so are the bytes, but for Gram partials of d / 114 (128 rows) to d / 102 (64) bytes an
// element, written and read.
//
//   d            shared memory, KiB: Gram, chain, O      registers on sm_90a (CUDA 13.0)
//   up to 64     18.0    36.3    36.0                    96    127     64
//   65 to 128    36.0   136.5   102.0                   168    167    126
//
// A GPU that lets a thread block have less refuses such blocks (8.6 and 8.9: kInternal).
//
// Error. To first order, in Frobenius norms, O* being the same polynomial of u in exact arithmetic,
//
//   |O - O*| <= kTensorCoreEpsilon A |O*|,      kTensorCoreEpsilon = 2^-23
//
// where A depends on the coefficients and on the block's singular values (ErrorFactor of double_step.h):
// it adds up what a relative change of each matrix of the chain by 1 becomes in O. For quintic5 it is
// 10^3 on Gaussian blocks twice as wide as tall and up to 10^5 where singular values spread over many
// decades; for polar_express8 up to 10^7 there, where the bound says little. With SplitDotBound(256) of
// half_split.h, 2^-15, in place of 2^-23 it holds also if every rounding of a sum goes the same way.
// Emulated (tensor_core_test) the error is at most a fourth of the bound: 2e-6 on Gaussian blocks twice
// as wide as tall, 1.4e-5 on square ones, 1e-3 at most on any of seven spectra, with either set: about
// half of contract mode's, whose chains of roundings are longer.
// The bits are the same in every run on one kind of GPU; another may have others.
//
// No CUDA header is included here.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_H_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/muon_step/cuda/table.h"
#include "kernels/muon_step/muon_step.h"

struct CUstream_st;

namespace headwise {

// The bound of MuonMode::kTensorCore: see above.
inline constexpr double kTensorCoreEpsilon = 0x1p-23;

// What may change from one step to the next; in device memory, where nobody checks it: a NaN makes
// weights NaN.
struct MuonStepScalars {
  double learning_rate = 0.02;
  double gradient_scale = 1.0;
  // Not zero: the step writes neither weight nor momentum (a gradient was not finite).
  std::uint32_t skip = 0;
};

// Where the chain's matrices are. Shows in no bit.
enum class MuonChainMemory {
  kAuto,       // by class, squares where the GPU has the shared memory
  kTriangles,  // as kAuto, but packed triangles for blocks of 65 to 128 rows
  kScratch,    // tiled, whatever the block's size
};

// What the products of blocks of up to 128 rows are computed by. The others' are fp32 in either.
enum class MuonMode {
  kContract,    // fp32, the bits of the reference
  kTensorCore,  // tensor cores, within an error bound
};

class MuonStepPlan {
 public:
  // Of every pointer in `weights` only the address is looked at: device memory. The weights' blocks
  // and the coefficients need not outlive the call. hyper.learning_rate and hyper.gradient_scale
  // are checked and otherwise ignored. Errors: those of MuonStep (muon_step.h), and
  // kInvalidArgument for a matrix with 2^30 rows or columns, or for more work than a grid has
  // blocks. No weights make a plan of no launches. G is float or BFloat16.
  template <typename G>
  static absl::StatusOr<MuonStepPlan> Create(const MuonHyperparameters& hyper,
                                             absl::Span<const MuonWeight<G>> weights,
                                             MuonMode mode = MuonMode::kContract,
                                             MuonChainMemory chain = MuonChainMemory::kAuto);

  // Host memory, as long as the plan: what to copy to device memory. A multiple of 16 bytes.
  absl::Span<const std::byte> table() const { return table_; }
  // A multiple of 16.
  std::int64_t scratch_bytes() const { return scratch_floats_ * std::int64_t{sizeof(float)}; }
  // Kernels of a step.
  int launches() const;

  // For the launchers.
  struct Constants {
    float beta, one_minus_beta;
    double weight_decay;
    bool nesterov;
  };
  struct Segment {  // steps between restarts
    int begin, end;
  };
  const Constants& constants() const { return constants_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<QuinticStep>& steps() const { return steps_; }
  const muon_step::TableLayout& layout() const { return layout_; }
  bool bf16_gradients() const { return bf16_gradients_; }
  MuonMode mode() const { return mode_; }
  MuonChainMemory chain() const { return chain_; }

 private:
  MuonStepPlan() = default;

  Constants constants_ = {};
  std::vector<QuinticStep> steps_;
  std::vector<Segment> segments_;
  bool bf16_gradients_ = false;
  MuonMode mode_ = MuonMode::kContract;
  MuonChainMemory chain_ = MuonChainMemory::kAuto;
  std::vector<std::byte> table_;
  std::int64_t scratch_floats_ = 0;
  muon_step::TableLayout layout_;
};

// All memory is device memory, owned by the caller, left alone until the stream has passed the
// launch, and overlaps neither the weights nor each other.
struct MuonStepLaunch {
  CUstream_st* stream = nullptr;             // a cudaStream_t
  const std::byte* table = nullptr;          // a copy of plan.table(), at a multiple of 16 bytes
  const MuonStepScalars* scalars = nullptr;  // one
  std::byte* scratch = nullptr;  // plan.scratch_bytes() at a multiple of 16; contents irrelevant
};

// Enqueues a step. kInvalidArgument for a missing or misaligned member of `launch`, kInternal with
// CUDA's message if a launch fails.
namespace cuda {
absl::Status MuonStep(const MuonStepPlan& plan, const MuonStepLaunch& launch);
}  // namespace cuda
namespace cuda_emulated {
absl::Status MuonStep(const MuonStepPlan& plan, const MuonStepLaunch& launch);
}  // namespace cuda_emulated

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_H_
