// The fast path of Newton-Schulz on matrices: finds the blocks and moves their rows.
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/status_macros.h"
#include "kernels/newton_schulz/block_view.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/newton_schulz/orthogonalize.h"
#include "kernels/newton_schulz/streaming.h"
#include "kernels/newton_schulz/validate.h"

namespace headwise {
namespace {

class MatrixBlock final : public newton_schulz::BlockAccess {
 public:
  MatrixBlock(const NewtonSchulzProblem& problem, const HeadBlock& block)
      : problem_(problem),
        view_(block, problem.blocks->axis(), problem.input.rows, problem.input.width) {}

  std::int64_t rows() const override { return view_.rows(); }
  std::int64_t cols() const override { return view_.cols(); }
  bool transposed_storage() const override { return problem_.transposed_storage; }

  void Load(std::int64_t row, std::int64_t col, std::int64_t count, float* x) override {
    view_.ForEachRun(row, col, count, [&](auto r, auto c, auto length, auto done) {
      const float* const from = problem_.input.row(r) + c;
      newton_schulz::Prefetch(from + length, length);
      std::memcpy(x + done, from, length * sizeof(float));
    });
  }

  void Store(std::int64_t row, std::int64_t col, std::int64_t count, const float* o) override {
    view_.ForEachRun(row, col, count, [&](auto r, auto c, auto length, auto done) {
      newton_schulz::StreamCopy(o + done, length, problem_.output.row(r) + c);
    });
  }

 private:
  const NewtonSchulzProblem& problem_;
  newton_schulz::BlockView view_;
};

}  // namespace

absl::Status NewtonSchulz(const NewtonSchulzCoefficients& coefficients,
                          absl::Span<const NewtonSchulzProblem> problems, ThreadPool& pool) {
  HW_RETURN_IF_ERROR(newton_schulz::CheckArguments(coefficients, problems));
  std::vector<MatrixBlock> blocks;
  for (const NewtonSchulzProblem& problem : problems) {
    for (const HeadBlock& block : problem.blocks->blocks()) blocks.emplace_back(problem, block);
  }
  std::vector<newton_schulz::BlockAccess*> access;
  access.reserve(blocks.size());
  for (MatrixBlock& block : blocks) access.push_back(&block);
  newton_schulz::Orthogonalize(coefficients, access, pool);
  return absl::OkStatus();
}

}  // namespace headwise
