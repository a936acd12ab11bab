// A Muon step whose Newton-Schulz is the standard form through oneDNN: one pass for the momentum,
// which writes the blocks (the tall ones transposed) for the products, one for the weights.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/newton_schulz/coefficients.h"
#include "kernels/newton_schulz/onednn_standard_form.h"
#include "tools/muon_compare/contenders.h"

namespace headwise::muon_compare {
namespace {

constexpr float kBeta = 0.95f;
constexpr std::int64_t kTile = 32;  // of a transposed copy

// The blocks of one shape, of all weights.
class Batch {
 public:
  Batch(const MatrixGroup& group, const Case& c, int threads)
      : group_(group),
        case_(c),
        threads_(threads),
        tall_(group.rows > c.width),
        scale_(std::sqrt(
            std::max(1.0f, static_cast<float>(group.rows) / static_cast<float>(c.width)))),
        x_(c.weights * group.count * group.rows * c.width),
        standard_form_(Quintic5(), c.weights * group.count, std::min(group.rows, c.width),
                       std::max(group.rows, c.width), threads) {}

  void Run(const float* gradient, float* momentum, float* weight) {
    omp_set_num_threads(threads_);  // as when the products were made
    ForEachTile([&](std::int64_t from, float* to, std::int64_t count, std::int64_t stride) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[from + i];
        float& m = momentum[from + i];
        m += (1 - kBeta) * (g - m);
        to[i * stride] = g + kBeta * (m - g);
      }
    });
    standard_form_.Run(x_.data(), x_.data());
    ForEachTile([&](std::int64_t to, const float* o, std::int64_t count, std::int64_t stride) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) weight[to + i] -= scale_ * o[i * stride];
    });
  }

 private:
  // f(first element in the stacked weights, its place in x_, elements, from one to the next in x_),
  // row by row of a strip; a tall block lies transposed in x_.
  template <typename F>
  void ForEachTile(const F& f) {
    const std::int64_t strips = (group_.rows + kTile - 1) / kTile;
    const std::int64_t blocks = case_.weights * group_.count;
#pragma omp parallel for collapse(2) num_threads(threads_)
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t begin = strip * kTile, end = std::min(begin + kTile, group_.rows);
        const std::int64_t first = block / group_.count * case_.rows() + group_.first_row +
                                   block % group_.count * group_.rows;
        float* const x = x_.data() + block * group_.rows * case_.width;
        const std::int64_t run = tall_ ? kTile : case_.width;
        for (std::int64_t c = 0; c < case_.width; c += run) {
          for (std::int64_t r = begin; r < end; ++r) {
            const std::int64_t count = std::min(run, case_.width - c);
            f((first + r) * case_.width + c,
              tall_ ? x + c * group_.rows + r : x + r * case_.width + c, count,
              tall_ ? group_.rows : 1);
          }
        }
      }
    }
  }

  const MatrixGroup group_;
  const Case case_;
  const int threads_;
  const bool tall_;
  const float scale_;
  std::vector<float> x_;
  newton_schulz::OneDnnStandardForm standard_form_;
};

class StandardForm final : public Contender {
 public:
  StandardForm(const std::vector<MatrixGroup>& groups, const Case& c, int threads,
               std::vector<float> gradient)
      : gradient_(std::move(gradient)), momentum_(gradient_.size()), weight_(gradient_.size()) {
    for (const MatrixGroup& group : groups) {
      batches_.push_back(std::make_unique<Batch>(group, c, threads));
    }
  }

  void Run() override {
    for (const auto& batch : batches_) {
      batch->Run(gradient_.data(), momentum_.data(), weight_.data());
    }
  }
  const std::vector<float>& weight() const override { return weight_; }

 private:
  std::vector<float> gradient_, momentum_, weight_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

}  // namespace

std::unique_ptr<Contender> MakeStandardForm(const std::vector<MatrixGroup>& groups, const Case& c,
                                            int threads, std::vector<float> gradient) {
  return std::make_unique<StandardForm>(groups, c, threads, std::move(gradient));
}

}  // namespace headwise::muon_compare
