#include "kernels/newton_schulz/onednn_standard_form.h"

#include <omp.h>

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

namespace headwise::newton_schulz {
namespace {

using dnnl::memory;

memory::desc Matrices(std::int64_t batch, std::int64_t rows, std::int64_t cols) {
  return memory::desc({batch, rows, cols}, memory::data_type::f32, {rows * cols, cols, 1});
}
// The same memory as Matrices(batch, cols, rows).
memory::desc Transposed(std::int64_t batch, std::int64_t rows, std::int64_t cols) {
  return memory::desc({batch, rows, cols}, memory::data_type::f32, {rows * cols, 1, rows});
}

// C = scale A B + sum C.
class MatMul {
 public:
  MatMul(const dnnl::engine& engine, memory::desc a, memory::desc b, memory::desc c,
         float scale = 1, float sum = 0)
      : engine_(engine), a_(a), b_(b), c_(c) {
    dnnl::primitive_attr attributes;
    if (scale != 1) attributes.set_output_scales(0, {scale});
    if (sum != 0) {
      dnnl::post_ops post_ops;
      post_ops.append_sum(sum);
      attributes.set_post_ops(post_ops);
    }
    product_ = dnnl::matmul({{a, b, c}, attributes, engine});
  }

  void Run(dnnl::stream& stream, float* a, float* b, float* c) const {
    product_.execute(stream, {{DNNL_ARG_SRC, memory(a_, engine_, a)},
                              {DNNL_ARG_WEIGHTS, memory(b_, engine_, b)},
                              {DNNL_ARG_DST, memory(c_, engine_, c)}});
    stream.wait();
  }

 private:
  dnnl::engine engine_;
  memory::desc a_, b_, c_;
  dnnl::matmul product_;
};

struct OneDnn {
  explicit OneDnn(int threads) : threads(threads) { omp_set_num_threads(threads); }

  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

}  // namespace

struct OneDnnStandardForm::State : OneDnn {
  State(const NewtonSchulzCoefficients& coefficients, std::int64_t batch, std::int64_t d,
        std::int64_t n, int threads)
      : OneDnn(threads),
        steps(coefficients.steps),
        batch(batch),
        d(d),
        n(n),
        gram(engine, Matrices(batch, d, n), Transposed(batch, n, d), Matrices(batch, d, d)),
        apply(engine, Matrices(batch, d, d), Matrices(batch, d, n), Matrices(batch, d, n)),
        a(batch * d * d),
        b(batch * d * d),
        other(batch * d * n) {
    for (const QuinticStep& step : steps) {
      const memory::desc square = Matrices(batch, d, d);
      squares.emplace_back(engine, square, square, square, step.c, step.b);
    }
  }

  // One block of X <- X / |X|.
  void Normalize(const float* input, float* output, std::int64_t block) const {
    const float* const from = input + block * d * n;
    float* const to = output + block * d * n;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < d * n; ++i) sum += from[i] * from[i];
    const float scale = 1 / std::sqrt(sum);
#pragma omp simd
    for (std::int64_t i = 0; i < d * n; ++i) to[i] = from[i] * scale;
  }

  const std::vector<QuinticStep> steps;
  const std::int64_t batch, d, n;
  MatMul gram, apply;
  std::vector<MatMul> squares;  // B = c A A + b B
  std::vector<float> a, b, other;
};

OneDnnStandardForm::OneDnnStandardForm(const NewtonSchulzCoefficients& coefficients,
                                       std::int64_t batch, std::int64_t d, std::int64_t n,
                                       int threads)
    : state_(std::make_unique<State>(coefficients, batch, d, n, threads)) {}

OneDnnStandardForm::~OneDnnStandardForm() = default;

void OneDnnStandardForm::Run(const float* input, float* output) {
  State& s = *state_;
  // The two take turns, and the last turn is output's.
  float* x = s.steps.size() % 2 == 0 ? output : s.other.data();
  float* next = s.steps.size() % 2 == 0 ? s.other.data() : output;
#pragma omp parallel for num_threads(s.threads)
  for (std::int64_t block = 0; block < s.batch; ++block) s.Normalize(input, x, block);
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    s.gram.Run(s.stream, x, x, s.a.data());
    s.b = s.a;
    s.squares[i].Run(s.stream, s.a.data(), s.a.data(), s.b.data());
    for (std::int64_t row = 0; row < s.batch * s.d; ++row) {
      s.b[row * s.d + row % s.d] += s.steps[i].a;
    }
    s.apply.Run(s.stream, s.b.data(), x, next);
    std::swap(x, next);
  }
}

double OneDnnStandardForm::flops() const {
  const double d = static_cast<double>(state_->d), n = static_cast<double>(state_->n);
  return static_cast<double>(state_->steps.size() * state_->batch) *
         (4 * d * d * n + 2 * d * d * d);
}

struct OneDnnGemmRate::State : OneDnn {
  static constexpr std::int64_t kSize = 1024;

  explicit State(int threads) : OneDnn(threads) {}

  MatMul product{engine, Matrices(1, kSize, kSize), Matrices(1, kSize, kSize),
                 Matrices(1, kSize, kSize)};
  std::vector<float> a = std::vector<float>(kSize * kSize, 0.5f), b = a, c = a;
};

OneDnnGemmRate::OneDnnGemmRate(int threads) : state_(std::make_unique<State>(threads)) {}

OneDnnGemmRate::~OneDnnGemmRate() = default;

double OneDnnGemmRate::Measure() {
  State& s = *state_;
  const auto start = std::chrono::steady_clock::now();
  s.product.Run(s.stream, s.a.data(), s.b.data(), s.c.data());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return 2.0 * State::kSize * State::kSize * State::kSize / seconds.count();
}

}  // namespace headwise::newton_schulz
