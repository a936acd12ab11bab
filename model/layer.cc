#include "model/layer.h"

#include <string>
#include <utility>

namespace headwise {
namespace {

std::string ParameterName(std::int64_t layer, const char* part) {
  return "layers." + std::to_string(layer) + "." + part;
}

}  // namespace

Layer::Layer(const ModelConfig& config, std::int64_t index, const RotaryTable* rotary,
             ParameterStore& store)
    : attention_norm_(config.attention_norm(), ParameterName(index, "attention_norm"), config.dim(),
                      store),
      attention_(config, index, ParameterName(index, "attention"), rotary, store),
      post_attention_norm_(config.post_attention_norm(),
                           ParameterName(index, "post_attention_norm"), config.dim(), store),
      ffn_norm_(config.ffn_norm(), ParameterName(index, "ffn_norm"), config.dim(), store),
      ffn_(config, index, ParameterName(index, "ffn"), store),
      post_ffn_norm_(config.post_ffn_norm(), ParameterName(index, "post_ffn_norm"), config.dim(),
                     store) {}

Tensor Layer::Finish(const OpContext& ctx, const Tensor& h, Tensor attention_out,
                     Saved* saved) const {
  // Branches are fresh tensors here (a saved one has gone through its post norm), so the residual
  // is added in place.
  const Tensor middle = post_attention_norm_.Forward(ctx, attention_out);
  ops::AddInPlace(ctx, middle, h);
  if (saved != nullptr) {
    saved->input = h;
    if (post_attention_norm_.present()) saved->attention_out = attention_out;
    saved->middle = middle;
  }
  attention_out = Tensor();

  const Tensor ffn_out =
      ffn_.Forward(ctx, ffn_norm_.Forward(ctx, middle), saved == nullptr ? nullptr : &saved->ffn);
  const Tensor out = post_ffn_norm_.Forward(ctx, ffn_out);
  ops::AddInPlace(ctx, out, middle);
  if (saved != nullptr && post_ffn_norm_.present()) saved->ffn_out = ffn_out;
  return out;
}

Tensor Layer::Forward(const OpContext& ctx, const Tensor& h, const SequenceInfo& sequence,
                      Saved* saved) const {
  Tensor attention_out = attention_.Forward(ctx, attention_norm_.Forward(ctx, h), sequence,
                                            saved == nullptr ? nullptr : &saved->attention);
  return Finish(ctx, h, std::move(attention_out), saved);
}

Tensor Layer::Extend(const OpContext& ctx, const Tensor& h,
                     absl::Span<const std::int64_t> positions, const KvCache::Pass& pass,
                     KvCache& cache) const {
  return Finish(ctx, h,
                attention_.Extend(ctx, attention_norm_.Forward(ctx, h), positions, pass, cache),
                nullptr);
}

Tensor Layer::Backward(const OpContext& ctx, const Tensor& dout, const SequenceInfo& sequence,
                       Saved saved) const {
  Tensor dmiddle;
  {
    const Tensor dffn_out = post_ffn_norm_.Backward(ctx, saved.ffn_out, dout);
    saved.ffn_out = Tensor();
    const Tensor dnormed = ffn_.Backward(ctx, ffn_norm_.Forward(ctx, saved.middle), dffn_out,
                                         std::exchange(saved.ffn, {}));
    dmiddle = ffn_norm_.Backward(ctx, std::exchange(saved.middle, Tensor()), dnormed);
    ops::AddInPlace(ctx, dmiddle, dout);
  }
  const Tensor dattention_out = post_attention_norm_.Backward(ctx, saved.attention_out, dmiddle);
  saved.attention_out = Tensor();
  const Tensor dnormed =
      attention_.Backward(ctx, attention_norm_.Forward(ctx, saved.input), dattention_out, sequence,
                          std::exchange(saved.attention, {}));
  const Tensor dh = attention_norm_.Backward(ctx, saved.input, dnormed);
  ops::AddInPlace(ctx, dh, dmiddle);
  return dh;
}

}  // namespace headwise
