#include "model/output_head.h"

#include <algorithm>

namespace headwise {
namespace {

// z is made for this many of its elements at a time, so that a large vocabulary does not need T x V
// of them at once. Part of the results' bits through the sums over tokens and, with oneDNN, the
// shape of the product: never a function of the machine.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;

std::int64_t ChunkTokens(std::int64_t vocab_size) {
  return std::max<std::int64_t>(64, kChunkElements / vocab_size / 64 * 64);
}

}  // namespace

OutputHead::OutputHead(const ModelConfig& config, const LinearWeight& embedding,
                       ParameterStore& store)
    : norm_(config.final_norm(), "final_norm", config.dim(), store),
      weight_(config.tied_head()
                  ? embedding
                  : store.AddLinear("head.weight", ParameterRole::kOutputHead, config.vocab_size(),
                                    config.dim(), Init::Truncated(config.init().head_std()))),
      transform_{.multiplier = config.logit_multiplier(), .cap = config.logit_cap()} {}

Tensor OutputHead::Logits(const OpContext& ctx, const Tensor& h) const {
  const Tensor z = ctx.Empty({h.dim(0), weight_.compute.dim(0)}, ctx.master());
  ops::LinearToMaster(ctx, norm_.Forward(ctx, h), weight_.compute, {}, z);
  ops::TransformLogitsInPlace(ctx, transform_, z);
  return z;
}

double OutputHead::Loss(const OpContext& ctx, const Tensor& h,
                        absl::Span<const std::int32_t> targets, double loss_scale,
                        Tensor* dh) const {
  const std::int64_t tokens = h.dim(0);
  const std::int64_t vocab_size = weight_.compute.dim(0);
  const std::int64_t chunk = std::min(tokens, ChunkTokens(vocab_size));
  const Tensor x = norm_.Forward(ctx, h);
  const Tensor losses = ctx.Empty({tokens}, ctx.master());
  const Tensor dz = dh == nullptr ? Tensor() : ctx.Empty({tokens, vocab_size});
  {
    const Tensor z_chunk = ctx.Empty({chunk, vocab_size}, ctx.master());
    for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
      const std::int64_t count = std::min(chunk, tokens - begin);
      const Tensor z = z_chunk.Slice(0, count);
      ops::LinearToMaster(ctx, x.Slice(begin, count), weight_.compute, {}, z);
      ops::CrossEntropy(ctx, transform_, z, targets.subspan(begin, count), loss_scale,
                        losses.Slice(begin, count),
                        dz.defined() ? dz.Slice(begin, count) : Tensor());
    }
  }
  if (dh != nullptr) {
    ops::LinearBackwardWeight(ctx, dz, x, weight_.parameter->gradient);
    *dh = norm_.Backward(ctx, h, ops::LinearBackwardInput(ctx, dz, weight_.compute));
  }
  return ops::SumLosses(ctx, losses);
}

}  // namespace headwise
