#include "model/bench/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "model/bench/operands.h"
#include "model/bench/traffic.h"
#include "model/config.h"
#include "model/layer_ops.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

using Work = KernelWork;

class Cases {
 public:
  Cases(const RunConfig& config, std::int64_t tokens, bool unfused)
      : config_(config),
        model_(config.model()),
        attention_(model_.attention()),
        tokens_(tokens),
        unfused_(unfused),
        element_(SizeOf(DecoderOptionsOf(config.training()).compute)),
        heads_(attention_.num_query_heads()),
        groups_(attention_.num_kv_heads()),
        dim_(attention_.head_dim()) {
    for (std::int64_t l = 0; l < model_.num_layers(); ++l) {
      experts_ += LayerHasExperts(model_, l);
    }
  }

  std::vector<KernelCase> All() {
    AddQkv();
    AddAttention();
    AddNorms();
    AddResiduals();
    AddGate();
    AddFfns();
    AddLinearLayers();
    AddEnds();
    AddOptimizer();
    std::stable_sort(cases_.begin(), cases_.end(), [](const KernelCase& a, const KernelCase& b) {
      return a.calls * a.bytes > b.calls * b.bytes;
    });
    return std::move(cases_);
  }

 private:
  std::int64_t layers() const { return model_.num_layers(); }
  std::int64_t dense() const { return layers() - experts_; }

  // Operands and results are the bytes that a call moves, unless said otherwise.
  void Add(std::string name, std::int64_t calls, std::int64_t bytes, double flops,
           KernelCase::Make make, std::int64_t memory = 0) {
    if (calls == 0 || bytes == 0) return;
    cases_.push_back({.name = std::move(name),
                      .calls = calls,
                      .bytes = bytes,
                      .flops = flops,
                      .memory = memory == 0 ? bytes : memory,
                      .make = std::move(make)});
  }

  // An operation of model/ops.h: `make` gets its context and makes the operands.
  template <typename Make>
  KernelCase::Make Op(const Make& make) const {
    const RunConfig config = config_;
    return [config, make](BenchDevice& device) -> absl::StatusOr<Work> {
      return make(device, device.Context(config));
    };
  }

  std::int64_t Matrices(std::int64_t count, std::int64_t rows, std::int64_t width) const {
    return MatrixBytes(count, rows, width, element_);
  }

  void AddQkv();
  void AddQkv(bool unfused, const char* name);
  void AddAttention();
  void AddNorm(const char* name, const NormConfig& norm, std::int64_t rows, std::int64_t width,
               std::int64_t forward, std::int64_t backward);
  void AddNorms();
  void AddResiduals();
  void AddGate();
  void AddSwiglu(const char* name, std::int64_t rows, std::int64_t width, std::int64_t layers);
  void AddFfns();
  void AddLinear(const char* name, std::int64_t n, std::int64_t k, std::int64_t layers);
  void AddExpertLinear(const char* name, std::int64_t n, std::int64_t k, std::int64_t calls);
  void AddLinearLayers();
  void AddEnds();
  void AddOptimizer();

  const RunConfig& config_;
  const ModelConfig& model_;
  const AttentionConfig& attention_;
  std::int64_t tokens_;
  bool unfused_;
  std::int64_t element_, heads_, groups_, dim_;
  std::int64_t experts_ = 0;  // layers with experts
  std::vector<KernelCase> cases_;
};

void Cases::AddQkv(bool unfused, const char* name) {
  const QkvTraffic t = {.tokens = tokens_,
                        .query_heads = heads_,
                        .kv_heads = groups_,
                        .head_dim = dim_,
                        .norm = attention_.head_norm() != HEAD_NORM_NONE,
                        .element = element_,
                        .between = element_};
  const RunConfig config = config_;
  const std::int64_t tokens = tokens_;
  const std::int64_t memory =
      2 * PrepareQkvBackwardBytes(t) + (unfused ? UnfusedQkvBackwardBytes(t) : 0);
  Add(absl::StrCat(name, ".forward"), 2 * layers(),
      unfused ? UnfusedQkvBytes(t) : PrepareQkvBytes(t), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        HW_ASSIGN_OR_RETURN(const auto operands, MakeQkv(device, ctx, config, tokens));
        return Work([=] {
          ops::PrepareQkv(operands->context(ctx), operands->arguments(unfused), operands->packed);
        });
      }),
      memory);
  Add(absl::StrCat(name, ".backward"), layers(),
      unfused ? UnfusedQkvBackwardBytes(t) : PrepareQkvBackwardBytes(t), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        HW_ASSIGN_OR_RETURN(const auto operands, MakeQkv(device, ctx, config, tokens));
        return Work([=] {
          const bool weights = operands->q_weight.defined();
          ops::PrepareQkvBackward(operands->context(ctx), operands->arguments(unfused),
                                  operands->packed, operands->gradients,
                                  weights ? &operands->dq_weight : nullptr,
                                  weights ? &operands->dk_weight : nullptr);
        });
      }),
      memory);
}

void Cases::AddQkv() {
  AddQkv(false, "prepare_qkv");
  if (unfused_) AddQkv(true, "unfused_qkv");
}

// One pair of cases for each window that occurs.
void Cases::AddAttention() {
  std::vector<std::pair<std::int64_t, std::int64_t>> windows;  // and their layers
  for (std::int64_t l = 0; l < layers(); ++l) {
    const std::int64_t window = LayerWindow(model_, l);
    const auto same = std::find_if(windows.begin(), windows.end(),
                                   [&](const auto& entry) { return entry.first == window; });
    same == windows.end() ? windows.emplace_back(window, 1) : * same = {window, same->second + 1};
  }
  const std::int64_t q = heads_ * dim_, kv = groups_ * dim_, tokens = tokens_;
  const std::vector<AttentionSegment> segments =
      Segments(tokens_, config_.training().sequence_length());
  for (const auto& [window, count] : windows) {
    std::int64_t pairs = 0;
    for (const AttentionSegment& s : segments) pairs += VisiblePairs(s.num_queries, window);
    const Attention op = {.query_heads = heads_,
                          .kv_heads = groups_,
                          .head_dim = dim_,
                          .scale = 1.0 / std::sqrt(static_cast<double>(dim_)),
                          .window = window};
    const std::string name = window == 0 ? "attention" : absl::StrCat("attention_", window);
    const double products = static_cast<double>(pairs) * static_cast<double>(q);
    const std::int64_t statistics = 4 * tokens_ * heads_;
    const auto make_qkv = [=](BenchDevice& device, const OpContext& ctx) {
      return ops::Qkv{.q = device.Random({tokens, q}, ctx.compute),
                      .k = device.Random({tokens, kv}, ctx.compute),
                      .v = device.Random({tokens, kv}, ctx.compute)};
    };
    Add(absl::StrCat(name, ".forward"), count, Matrices(2, tokens_, q + kv) + statistics,
        4 * products, Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
          const ops::Qkv qkv = make_qkv(device, ctx);
          const Tensor words = OnDevice(device, segments);
          return Work([=] { ops::Attention(ctx, op, SegmentsOf(words), qkv, {}, true); });
        }));
    Add(absl::StrCat(name, ".backward"), count, Matrices(4, tokens_, q + kv) + statistics,
        10 * products, Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
          const ops::Qkv qkv = make_qkv(device, ctx);
          const Tensor words = OnDevice(device, segments);
          const ops::AttentionOutput saved =
              ops::Attention(ctx, op, SegmentsOf(words), qkv, {}, true);
          const Tensor d_o = device.Random({tokens, q}, ctx.compute);
          return Work([=] {
            ops::AttentionBackward(ctx, op, SegmentsOf(words), qkv, {}, saved, d_o, nullptr);
          });
        }));
  }
}

void Cases::AddNorm(const char* name, const NormConfig& norm, std::int64_t rows, std::int64_t width,
                    std::int64_t forward, std::int64_t backward) {
  if (norm.style() == NORM_ABSENT) return;
  const RmsNorm op = RmsNormOf(norm);
  const bool weighted = op.style != RmsNormStyle::kScaleless;
  Add(absl::StrCat(name, ".forward"), forward, Matrices(2, rows, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({rows, width}, ctx.compute);
        const Tensor weight = weighted ? device.Random({width}, DType::kF32) : Tensor();
        return Work([=] { ops::RmsNorm(ctx, op, x, weight); });
      }));
  Add(absl::StrCat(name, ".backward"), backward, Matrices(3, rows, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({rows, width}, ctx.compute);
        const Tensor dy = device.Random({rows, width}, ctx.compute);
        const Tensor weight = weighted ? device.Random({width}, DType::kF32) : Tensor();
        Tensor dweight = weighted ? device.Zeros({width}, DType::kF32) : Tensor();
        return Work([=]() mutable { ops::RmsNormBackward(ctx, op, x, weight, dy, dweight); });
      }));
}

void Cases::AddNorms() {
  // A gated residual recomputes what it adds.
  const std::int64_t post = model_.residual_gate_temperature() > 0 ? 2 : 1;
  const std::int64_t n = model_.dim(), l = layers();
  AddNorm("embedding_norm", model_.embedding_norm(), tokens_, n, 1, 1);
  AddNorm("attention_norm", model_.attention_norm(), tokens_, n, 2 * l, l);
  AddNorm("post_attention_norm", model_.post_attention_norm(), tokens_, n, post * l, l);
  AddNorm("ffn_norm", model_.ffn_norm(), tokens_, n, 2 * l, l);
  AddNorm("post_ffn_norm", model_.post_ffn_norm(), tokens_, n, post * l, l);
  AddNorm("final_norm", model_.final_norm(), tokens_, n, 1, 1);
  if (experts_ > 0) {
    const MoeConfig& moe = model_.ffn().moe();
    const std::int64_t width = moe.expert_width() == 0 ? n : moe.expert_width();
    AddNorm("pre_expert_norm", moe.pre_expert_norm(), tokens_, width, 2 * experts_, experts_);
    AddNorm("post_expert_norm", moe.post_expert_norm(), tokens_ * moe.experts_per_token(), width,
            2 * experts_, experts_);
  }
  if (attention_.output_norm_epsilon() == 0) return;
  const RmsNorm op = {.style = RmsNormStyle::kScaleless,
                      .epsilon = static_cast<float>(attention_.output_norm_epsilon())};
  const std::int64_t width = heads_ * dim_, tokens = tokens_, dim = dim_;
  Add("output_norm.forward", 2 * l, Matrices(2, tokens_, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({tokens, width}, ctx.compute);
        return Work([=] { ops::HeadRmsNorm(ctx, op, dim, x); });
      }));
  Add("output_norm.backward", l, Matrices(3, tokens_, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({tokens, width}, ctx.compute);
        const Tensor dy = device.Random({tokens, width}, ctx.compute);
        return Work([=] { ops::HeadRmsNormBackward(ctx, op, dim, x, dy); });
      }));
}

void Cases::AddResiduals() {
  const std::int64_t tokens = tokens_, n = model_.dim();
  const bool gated = model_.residual_gate_temperature() > 0;
  // Both residuals of a layer and their gradients; what w1 and w3, and wqkv and the gate, send back.
  const std::int64_t gradients = 2 * layers() + dense() + (attention_.output_gate() ? layers() : 0);
  Add("add", (gated ? 0 : 2 * layers()) + gradients, Matrices(3, tokens_, n), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor a = device.Random({tokens, n}, ctx.compute);
        const Tensor b = device.Random({tokens, n}, ctx.compute);
        return Work([=] { ops::Add(ctx, a, b); });
      }));
  if (!gated) return;
  const ResidualGate op = {.temperature = model_.residual_gate_temperature()};
  Add("residual_gate.forward", 2 * layers(), Matrices(3, tokens_, n), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor h = device.Random({tokens, n}, ctx.compute);
        const Tensor branch = device.Random({tokens, n}, ctx.compute);
        const Tensor gate = device.Random({n}, DType::kF32);
        return Work([=] { ops::GatedResidual(ctx, op, h, branch, gate); });
      }));
  Add("residual_gate.backward", 2 * layers(), Matrices(5, tokens_, n), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor h = device.Random({tokens, n}, ctx.compute);
        const Tensor branch = device.Random({tokens, n}, ctx.compute);
        const Tensor dout = device.Random({tokens, n}, ctx.compute);
        const Tensor gate = device.Random({n}, DType::kF32);
        Tensor dgate = device.Zeros({n}, DType::kF32);
        return Work(
            [=]() mutable { ops::GatedResidualBackward(ctx, op, h, branch, gate, dout, dgate); });
      }));
}

void Cases::AddGate() {
  if (!attention_.output_gate()) return;
  const std::int64_t tokens = tokens_, width = heads_ * dim_;
  Add("output_gate.forward", 2 * layers(), Matrices(3, tokens_, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({tokens, width}, ctx.compute);
        const Tensor gate = device.Random({tokens, width}, ctx.compute);
        return Work([=] { ops::SigmoidGate(ctx, x, gate); });
      }));
  Add("output_gate.backward", layers(), Matrices(5, tokens_, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({tokens, width}, ctx.compute);
        const Tensor gate = device.Random({tokens, width}, ctx.compute);
        const Tensor dout = device.Random({tokens, width}, ctx.compute);
        return Work([=] { static_cast<void>(ops::SigmoidGateBackwardInPlace(ctx, x, gate, dout)); },
                    Restore(ctx, {gate, dout}));
      }));
}

void Cases::AddSwiglu(const char* name, std::int64_t rows, std::int64_t width,
                      std::int64_t layers) {
  const Swiglu op = SwigluOf(model_.ffn());
  Add(absl::StrCat(name, ".forward"), 2 * layers, Matrices(3, rows, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor gate = device.Random({rows, width}, ctx.compute);
        const Tensor up = device.Random({rows, width}, ctx.compute);
        return Work([=] { ops::Swiglu(ctx, op, gate, up); });
      }));
  Add(absl::StrCat(name, ".backward"), layers, Matrices(5, rows, width), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor gate = device.Random({rows, width}, ctx.compute);
        const Tensor up = device.Random({rows, width}, ctx.compute);
        const Tensor dout = device.Random({rows, width}, ctx.compute);
        return Work([=] { static_cast<void>(ops::SwigluBackwardInPlace(ctx, op, gate, up, dout)); },
                    Restore(ctx, {gate, up}));
      }));
}

void Cases::AddFfns() {
  if (dense() > 0) AddSwiglu("swiglu", tokens_, model_.ffn().hidden_dim(), dense());
  if (experts_ == 0) return;
  const MoeConfig& moe = model_.ffn().moe();
  AddSwiglu("expert_swiglu", tokens_ * moe.experts_per_token(), moe.expert_dim(), experts_);
  if (moe.shared_dim() > 0) AddSwiglu("shared_swiglu", tokens_, moe.shared_dim(), experts_);
}

// y [T, N] = x [T, K] W^T and its two backward products.
void Cases::AddLinear(const char* name, std::int64_t n, std::int64_t k, std::int64_t layers) {
  const std::int64_t tokens = tokens_;
  const std::int64_t bytes = LinearBytes(tokens_, n, k, element_);
  const double flops = LinearFlops(tokens_, n, k);
  Add(absl::StrCat(name, ".forward"), layers, bytes, flops,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({tokens, k}, ctx.compute);
        const Tensor w = device.Random({n, k}, ctx.compute);
        return Work([=] { ops::Linear(ctx, x, w, {}); });
      }));
  Add(absl::StrCat(name, ".backward_input"), layers, bytes, flops,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor dy = device.Random({tokens, n}, ctx.compute);
        const Tensor w = device.Random({n, k}, ctx.compute);
        return Work([=] { ops::LinearBackwardInput(ctx, dy, w); });
      }));
  // The gradient is in fp32.
  Add(absl::StrCat(name, ".backward_weight"), layers, bytes + n * k * (4 - element_), flops,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor dy = device.Random({tokens, n}, ctx.compute);
        const Tensor x = device.Random({tokens, k}, ctx.compute);
        Tensor dw = device.Zeros({n, k}, DType::kF32);
        return Work([=]() mutable { ops::LinearBackwardWeight(ctx, dy, x, dw); });
      }));
}

// The tokens' choices dealt out evenly.
void Cases::AddExpertLinear(const char* name, std::int64_t n, std::int64_t k, std::int64_t calls) {
  const MoeConfig& moe = model_.ffn().moe();
  const std::int64_t experts = moe.num_experts();
  ops::ExpertRows rows;
  rows.count = tokens_ * moe.experts_per_token();
  for (std::int64_t e = 0; e <= experts; ++e) {
    rows.offsets.push_back(rows.count / experts * e + rows.count % experts * e / experts);
  }
  const std::int64_t count = rows.count;
  const std::int64_t bytes = (count * (k + n) + experts * n * k) * element_;
  const double flops = LinearFlops(count, n, k);
  Add(absl::StrCat(name, ".forward"), calls, bytes, flops,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor x = device.Random({count, k}, ctx.compute);
        const Tensor w = device.Random({experts, n, k}, ctx.compute);
        const ops::ExpertRows r = OnDevice(device, rows);
        return Work([=] { ops::ExpertLinear(ctx, r, x, w, {}); });
      }));
  Add(absl::StrCat(name, ".backward_input"), calls, bytes, flops,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor dy = device.Random({count, n}, ctx.compute);
        const Tensor w = device.Random({experts, n, k}, ctx.compute);
        const ops::ExpertRows r = OnDevice(device, rows);
        return Work([=] { ops::ExpertLinearBackwardInput(ctx, r, dy, w); });
      }));
  Add(absl::StrCat(name, ".backward_weight"), calls, bytes + experts * n * k * (4 - element_),
      flops, Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor dy = device.Random({count, n}, ctx.compute);
        const Tensor x = device.Random({count, k}, ctx.compute);
        Tensor dw = device.Zeros({experts, n, k}, DType::kF32);
        const ops::ExpertRows r = OnDevice(device, rows);
        return Work([=]() mutable { ops::ExpertLinearBackwardWeight(ctx, r, dy, x, dw); });
      }));
}

void Cases::AddLinearLayers() {
  const std::int64_t n = model_.dim(), q = heads_ * dim_;
  AddLinear("wqkv", q + 2 * groups_ * dim_, n, layers());
  if (attention_.output_gate()) AddLinear("gate", q, n, layers());
  AddLinear("wo", n, q, layers());
  if (dense() > 0) {
    AddLinear("w1_w3", model_.ffn().hidden_dim(), n, 2 * dense());
    AddLinear("w2", n, model_.ffn().hidden_dim(), dense());
  }
  if (experts_ > 0) {
    const MoeConfig& moe = model_.ffn().moe();
    const std::int64_t width = moe.expert_width() == 0 ? n : moe.expert_width();
    if (moe.expert_width() != 0) {
      AddLinear("experts_down", width, n, experts_);
      AddLinear("experts_up", n, width, experts_);
    }
    AddExpertLinear("experts_w1_w3", moe.expert_dim(), width, 2 * experts_);
    AddExpertLinear("experts_w2", width, moe.expert_dim(), experts_);
    if (moe.shared_dim() > 0) {
      AddLinear("shared_w1_w3", moe.shared_dim(), n, 2 * experts_);
      AddLinear("shared_w2", n, moe.shared_dim(), experts_);
    }
  }
  AddLinear("head", model_.vocab_size(), n, 1);
}

void Cases::AddEnds() {
  const std::int64_t tokens = tokens_, vocabulary = model_.vocab_size(), n = model_.dim();
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    ids.push_back(static_cast<std::int32_t>(t * 7919 % vocabulary));
  }
  // Rows of the fp32 table that are looked up; the gradient is of the whole table.
  Add("embedding.forward", 1, tokens * n * (4 + element_), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor table = device.Random({vocabulary, n}, DType::kF32);
        const Tensor tokens_of_batch = OnDevice(device, ids.data(), tokens);
        return Work(
            [=] { ops::Embedding(ctx, {.ids = SpanOf<std::int32_t>(tokens_of_batch)}, table); });
      }),
      4 * vocabulary * n + tokens * n * element_);
  Add("embedding.backward", 1, tokens * n * element_ + 4 * vocabulary * n, 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        const Tensor table = device.Random({vocabulary, n}, DType::kF32);
        const Tensor dout = device.Random({tokens, n}, ctx.compute);
        Tensor dtable = device.Zeros({vocabulary, n}, DType::kF32);
        const Tensor tokens_of_batch = OnDevice(device, ids.data(), tokens);
        return Work([=]() mutable {
          ops::EmbeddingBackward(ctx, {.ids = SpanOf<std::int32_t>(tokens_of_batch)}, table, dout,
                                 dtable);
        });
      }),
      8 * vocabulary * n + tokens * n * element_);
  const LogitTransform transform = {.multiplier = model_.logit_multiplier(),
                                    .cap = model_.logit_cap()};
  Add("cross_entropy", 1, CrossEntropyBytes(tokens, vocabulary, element_), 0,
      Op([=](BenchDevice& device, const OpContext& ctx) -> absl::StatusOr<Work> {
        return device.CrossEntropy(transform, tokens, vocabulary, ctx.compute);
      }));
}

void Cases::AddOptimizer() {
  // Matrices of hidden layers are Muon's (optim/groups.h); routers, and what is smaller than a
  // matrix, are AdamW's with embedding and head.
  const std::int64_t n = model_.dim();
  const std::int64_t ends = (model_.tied_head() ? 1 : 2) * model_.vocab_size() * n;
  const std::int64_t routers = experts_ * model_.ffn().moe().num_experts() * n;
  std::int64_t muon =
      layers() * (heads_ * (attention_.output_gate() ? 3 : 2) + 2 * groups_) * dim_ * n;
  muon += dense() * 3 * n * model_.ffn().hidden_dim();
  if (experts_ > 0) {
    const MoeConfig& moe = model_.ffn().moe();
    const std::int64_t width = moe.expert_width() == 0 ? n : moe.expert_width();
    muon += experts_ * 3 * (moe.num_experts() * width * moe.expert_dim() + n * moe.shared_dim());
    if (moe.expert_width() != 0) muon += experts_ * 2 * n * width;
  }
  const std::int64_t adamw = ends + routers;
  Add(
      "adamw", 1, AdamWBytes(adamw), 0,
      [=](BenchDevice& device) -> absl::StatusOr<Work> { return device.AdamW(adamw); }, 16 * adamw);
  const RunConfig config = config_;
  Add(
      "muon_step", 1, MuonStepBytes(muon), 0,
      [=](BenchDevice& device) { return device.MuonStep(config); }, 12 * muon);
}

}  // namespace

std::vector<KernelCase> StepKernels(const RunConfig& config, std::int64_t tokens, bool unfused) {
  return Cases(config, tokens, unfused).All();
}

}  // namespace headwise
