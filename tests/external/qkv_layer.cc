#include "qkv_layer.h"

#include <random>
#include <utility>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/tensor/row_span.h"

namespace headwise_example {

using headwise::HeadNorm;
using headwise::PackedQkv;
using headwise::QkvPreparation;
using headwise::RotaryTable;
using headwise::RowSpan;
using headwise::ThreadPool;

namespace {

std::vector<float> Random(std::int64_t size, int seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(size);
  for (float& value : values) value = (engine() % 2001) * 1e-3f - 1.0f;
  return values;
}

// gradient = 2 scale (actual - target); returns scale * the sum of squares.
double SquaredDistance(const std::vector<float>& actual, const std::vector<float>& target,
                       double scale, std::vector<float>& gradient) {
  double sum = 0;
  gradient.resize(actual.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = actual[i] - target[i];
    gradient[i] = static_cast<float>(2 * scale * difference);
    sum += scale * difference * difference;
  }
  return sum;
}

}  // namespace

QkvLayer::QkvLayer(PackedQkv layout, RotaryTable rotary)
    : layout_(layout), rotary_(std::move(rotary)), input_(Random(kTokens * kWidth, /*seed=*/1)) {
  for (std::int64_t t = 0; t < kTokens; ++t) positions_.push_back(t);
}

absl::StatusOr<QkvLayer> QkvLayer::Create() {
  absl::StatusOr<PackedQkv> layout =
      PackedQkv::Interleaved({.query_heads = 4, .kv_heads = 2, .head_dim = 16});
  if (!layout.ok()) return layout.status();
  absl::StatusOr<RotaryTable> rotary = RotaryTable::Create({.length = kTokens, .rotary_dim = 16});
  if (!rotary.ok()) return rotary.status();
  return QkvLayer(*layout, *std::move(rotary));
}

QkvPreparation QkvLayer::Op() const {
  return {.layout = layout_, .norm = HeadNorm::kScaleless, .rotary = &rotary_};
}

std::vector<float> QkvLayer::RandomWeight(int seed) const {
  return Random(layout_.row_width() * kWidth, seed);
}

absl::StatusOr<QkvActivations> QkvLayer::Forward(const std::vector<float>& weight,
                                                 ThreadPool& pool) const {
  const std::int64_t rows = layout_.row_width(), head_dim = layout_.head_dim();
  QkvActivations out;
  out.packed.resize(kTokens * rows);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float sum = 0;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        sum += input_[t * kWidth + i] * weight[r * kWidth + i];
      }
      out.packed[t * rows + r] = sum;
    }
  }
  const std::int64_t q_width = layout_.query_heads() * head_dim;
  const std::int64_t kv_width = layout_.kv_heads() * head_dim;
  out.q.resize(kTokens * q_width);
  out.k.resize(kTokens * kv_width);
  out.v.resize(kTokens * kv_width);
  HW_RETURN_IF_ERROR(headwise::PrepareQkv<float>(
      Op(), {.packed = {out.packed.data(), kTokens, rows}, .positions = positions_},
      {.q = {out.q.data(), kTokens, q_width},
       .k = {out.k.data(), kTokens, kv_width},
       .v = {out.v.data(), kTokens, kv_width}},
      pool));
  return out;
}

absl::StatusOr<double> QkvLayer::LossAndGradient(const std::vector<float>& weight,
                                                 const QkvActivations& target,
                                                 std::vector<float>& gradient,
                                                 ThreadPool& pool) const {
  absl::StatusOr<QkvActivations> actual = Forward(weight, pool);
  if (!actual.ok()) return actual.status();
  const std::int64_t rows = layout_.row_width();
  const double scale = 1.0 / (kTokens * rows);
  std::vector<float> dq, dk, dv, dpacked(kTokens * rows);
  const double loss = SquaredDistance(actual->q, target.q, scale, dq) +
                      SquaredDistance(actual->k, target.k, scale, dk) +
                      SquaredDistance(actual->v, target.v, scale, dv);
  const auto width = [](const std::vector<float>& values) {
    return static_cast<std::int64_t>(values.size()) / kTokens;
  };
  HW_RETURN_IF_ERROR(headwise::PrepareQkvBackward<float>(
      Op(), {.packed = {actual->packed.data(), kTokens, rows}, .positions = positions_},
      {.dq = {dq.data(), kTokens, width(dq)},
       .dk = {dk.data(), kTokens, width(dk)},
       .dv = {dv.data(), kTokens, width(dv)}},
      {.dpacked = {dpacked.data(), kTokens, rows}}, pool));

  gradient.assign(rows * kWidth, 0.0f);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < kWidth; ++i) {
        gradient[r * kWidth + i] += dpacked[t * rows + r] * input_[t * kWidth + i];
      }
    }
  }
  return loss;
}

}  // namespace headwise_example
