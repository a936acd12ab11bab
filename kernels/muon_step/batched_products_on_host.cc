#include "kernels/muon_step/batched_products.h"

namespace headwise {
namespace {

class HostProducts final : public BatchedProducts {
 public:
  absl::Status Multiply(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k,
                        float alpha, const MatrixBatch<const BFloat16>& a,
                        const MatrixBatch<const BFloat16>& b, float beta,
                        const MatrixBatch<BFloat16>& c, std::int64_t count, CUstream_st*) override {
    for (std::int64_t batch = 0; batch < count; ++batch) {
      const BFloat16* const x = a.data + batch * a.next;
      const BFloat16* const y = b.data + batch * b.next;
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t i = 0; i < m; ++i) {
          float sum = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            sum += ToFloat(transpose_a ? x[i * a.stride + l] : x[l * a.stride + i]) *
                   ToFloat(y[j * b.stride + l]);
          }
          BFloat16& to = c.data[batch * c.next + j * c.stride + i];
          to = RoundToBFloat16(alpha * sum + (beta == 0 ? 0.0f : beta * ToFloat(to)));
        }
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchedProducts>> BatchedProducts::Create() {
  return std::make_unique<HostProducts>();
}

}  // namespace headwise
