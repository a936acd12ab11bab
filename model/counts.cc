#include "model/counts.h"

#include <algorithm>
#include <cstdint>

#include "core/base/check.h"
#include "model/config.h"

namespace headwise {
namespace {

std::int64_t NormParameters(const NormConfig& norm, std::int64_t dim) {
  return norm.style() == NORM_ABSENT || norm.style() == RMS_SCALELESS ? 0 : dim;
}

// The mean over positions 0 ... length - 1 of min(position + 1, window).
double MeanKeys(std::int64_t length, std::int64_t window) {
  const auto n = static_cast<double>(length);
  const double w = window == 0 ? n : static_cast<double>(std::min(window, length));
  return (w * (w + 1) / 2 + (n - w) * w) / n;
}

// Of three matrices [width, dim], and their biases.
ParameterCounts Ffn(std::int64_t width, std::int64_t dim, bool bias) {
  const std::int64_t matrices = 3 * width * dim;
  return {.total = matrices + (bias ? 2 * width + dim : 0), .matmul = matrices};
}

ParameterCounts Experts(const FfnConfig& ffn, std::int64_t dim) {
  const MoeConfig& moe = ffn.moe();
  const std::int64_t width = moe.expert_width() == 0 ? dim : moe.expert_width();
  const ParameterCounts expert = Ffn(moe.expert_dim(), width, ffn.bias());
  const ParameterCounts shared = Ffn(moe.shared_dim(), dim, ffn.bias());
  const std::int64_t router = moe.num_experts() * dim;
  ParameterCounts counts;
  counts.matmul = router + moe.experts_per_token() * expert.matmul;
  counts.total = router + moe.num_experts() * expert.total;
  if (moe.expert_width() != 0) {
    counts.matmul += 2 * width * dim;
    counts.total += 2 * width * dim;
  }
  counts.total +=
      NormParameters(moe.pre_expert_norm(), width) + NormParameters(moe.post_expert_norm(), width);
  if (moe.router_bias()) counts.total += moe.num_experts();
  if (moe.balancing() == BALANCING_BIAS) counts.total += moe.num_experts();
  if (moe.shared_dim() > 0) {
    counts.matmul += shared.matmul;
    counts.total += shared.total;
  }
  return counts;
}

}  // namespace

ParameterCounts CountParameters(const ModelConfig& config) {
  const AttentionConfig& a = config.attention();
  const std::int64_t dim = config.dim();
  const std::int64_t query_width = a.num_query_heads() * a.head_dim();
  const std::int64_t packed_width = (a.num_query_heads() + 2 * a.num_kv_heads()) * a.head_dim();
  const bool head_norm_weights =
      a.head_norm() == HEAD_NORM_WEIGHTED || a.head_norm() == HEAD_NORM_GAIN_CENTERED;

  std::int64_t matrices = packed_width * dim + dim * query_width;  // wqkv, wo
  if (a.output_gate()) matrices += query_width * dim;
  std::int64_t vectors = NormParameters(config.attention_norm(), dim) +
                         NormParameters(config.post_attention_norm(), dim) +
                         NormParameters(config.ffn_norm(), dim) +
                         NormParameters(config.post_ffn_norm(), dim);
  if (a.qkv_bias()) vectors += packed_width;
  if (a.output_bias()) vectors += dim;
  if (a.sinks()) vectors += a.num_query_heads();
  if (head_norm_weights) vectors += 2 * a.head_dim();
  if (config.residual_gate_temperature() > 0) vectors += 2 * dim;

  ParameterCounts counts;
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    const ParameterCounts ffn = LayerHasExperts(config, l)
                                    ? Experts(config.ffn(), dim)
                                    : Ffn(config.ffn().hidden_dim(), dim, config.ffn().bias());
    counts.matmul += matrices + ffn.matmul;
    counts.total += matrices + vectors + ffn.total;
  }
  const std::int64_t vocabulary = config.vocab_size() * dim;
  counts.matmul += vocabulary;
  counts.total += (config.tied_head() ? 1 : 2) * vocabulary +
                  NormParameters(config.embedding_norm(), dim) +
                  NormParameters(config.final_norm(), dim);
  return counts;
}

double TrainingFlopsPerToken(const ModelConfig& config, std::int64_t sequence_length) {
  HW_CHECK_GT(sequence_length, 0);
  const auto query_width =
      static_cast<double>(config.attention().num_query_heads() * config.attention().head_dim());
  double flops = 6.0 * static_cast<double>(CountParameters(config).matmul);
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    flops += 12.0 * query_width * MeanKeys(sequence_length, LayerWindow(config, l));
  }
  return flops;
}

}  // namespace headwise
