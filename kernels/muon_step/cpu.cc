// The fast path of the Muon step: momentum while a block is read for Newton-Schulz, the weight
// while its result is written. Gradient, momentum and weight are each touched once; the update
// exists only block by block, in the scratch of the thread that works on it.
#include <cstdint>
#include <vector>

#include "core/base/status_macros.h"
#include "kernels/muon_step/arguments.h"
#include "kernels/muon_step/elements.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/block_view.h"
#include "kernels/newton_schulz/orthogonalize.h"
#include "kernels/newton_schulz/streaming.h"

namespace headwise {
namespace {

template <typename G>
class WeightBlock final : public newton_schulz::BlockAccess {
 public:
  WeightBlock(const MuonHyperparameters& hyper, const muon_step::Constants& constants,
              const MuonWeight<G>& weight, const HeadBlock& block)
      : k_(constants),
        w_(weight),
        view_(block, weight.blocks->axis(), weight.weight.rows, weight.weight.width),
        minus_p_(
            -muon_step::StepSize(hyper, weight.transposed_storage, view_.rows(), view_.cols())) {}

  std::int64_t rows() const override { return view_.rows(); }
  std::int64_t cols() const override { return view_.cols(); }
  bool transposed_storage() const override { return w_.transposed_storage; }

  // m <- ..., u.
  void Load(std::int64_t row, std::int64_t col, std::int64_t count, float* u) override {
    view_.ForEachRun(row, col, count, [&](auto r, auto c, auto length, auto done) {
      const G* const g = w_.gradient.row(r) + c;
      float* const m = w_.momentum.row(r) + c;
      newton_schulz::Prefetch(g + length, length);
      newton_schulz::Prefetch(m + length, length);
      muon_step::MomentumRun(k_, g, m, u + done, length);
    });
  }

  // w <- ....
  void Store(std::int64_t row, std::int64_t col, std::int64_t count, const float* o) override {
    view_.ForEachRun(row, col, count, [&](auto r, auto c, auto length, auto done) {
      muon_step::WeightRun(k_, minus_p_, o + done, w_.weight.row(r) + c, length);
    });
  }

 private:
  const muon_step::Constants& k_;
  const MuonWeight<G>& w_;
  newton_schulz::BlockView view_;
  float minus_p_;
};

}  // namespace

template <typename G>
absl::Status MuonStep(const MuonHyperparameters& hyper, absl::Span<const MuonWeight<G>> weights,
                      ThreadPool& pool) {
  HW_RETURN_IF_ERROR(muon_step::CheckArguments(hyper, weights));
  const muon_step::Constants constants(hyper);
  std::vector<WeightBlock<G>> blocks;
  for (const MuonWeight<G>& weight : weights) {
    for (const HeadBlock& block : weight.blocks->blocks()) {
      blocks.emplace_back(hyper, constants, weight, block);
    }
  }
  std::vector<newton_schulz::BlockAccess*> access;
  access.reserve(blocks.size());
  for (WeightBlock<G>& block : blocks) access.push_back(&block);
  newton_schulz::Orthogonalize(*hyper.coefficients, access, pool);
  return absl::OkStatus();
}

template absl::Status MuonStep<float>(const MuonHyperparameters&,
                                      absl::Span<const MuonWeight<float>>, ThreadPool&);
template absl::Status MuonStep<BFloat16>(const MuonHyperparameters&,
                                         absl::Span<const MuonWeight<BFloat16>>, ThreadPool&);

}  // namespace headwise
