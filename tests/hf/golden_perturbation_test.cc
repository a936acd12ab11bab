// The golden data can tell: each detail of a family, got wrong, moves the logits far beyond the
// bound of golden_test.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/config.h"
#include "tests/hf/golden_case.h"

namespace headwise {
namespace {

// Gives every layer this window, whatever nope_every is.
void SetWindows(ModelConfig* model, const std::vector<std::int64_t>& windows) {
  AttentionConfig& a = *model->mutable_attention();
  const std::int64_t every = a.rope().nope_every();
  const auto layers = static_cast<std::int64_t>(windows.size());
  const std::int64_t phase = every == 0 ? 0 : every - layers % every;
  a.clear_window_pattern();
  for (std::int64_t i = 0; i < layers; ++i) {
    a.add_window_pattern(windows[((i - phase) % layers + layers) % layers]);
  }
}

std::vector<std::int64_t> Windows(const ModelConfig& model) {
  std::vector<std::int64_t> windows;
  for (std::int64_t l = 0; l < model.num_layers(); ++l) windows.push_back(LayerWindow(model, l));
  return windows;
}

std::function<void(ModelConfig*)> WidenWindows(std::int64_t by) {
  return [by](ModelConfig* model) {
    std::vector<std::int64_t> windows = Windows(*model);
    for (std::int64_t& window : windows) window += window == 0 ? 0 : by;
    SetWindows(model, windows);
  };
}

void ShiftWindows(ModelConfig* model) {
  std::vector<std::int64_t> windows = Windows(*model);
  std::rotate(windows.begin(), windows.begin() + 1, windows.end());
  SetWindows(model, windows);
}

// The first layer without RoPE becomes another one; windows stay.
void ShiftNope(ModelConfig* model) {
  const std::vector<std::int64_t> windows = Windows(*model);
  RopeConfig& rope = *model->mutable_attention()->mutable_rope();
  rope.set_nope_every(rope.nope_every() + 1);
  SetWindows(model, windows);
}

struct Perturbation {
  const char* name;
  std::vector<std::string> families;
  std::function<void(ModelConfig*)> change;
};

std::vector<Perturbation> Perturbations() {
  using M = ModelConfig;
  const auto attention = [](auto set) { return [set](M* m) { set(m->mutable_attention()); }; };
  const auto moe = [](auto set) { return [set](M* m) { set(m->mutable_ffn()->mutable_moe()); }; };
  using A = AttentionConfig;
  return {
      {"window + 1",
       {"muse_glimmer", "muse_spark", "mistral", "qwen3_window", "gpt_oss"},
       WidenWindows(1)},
      {"window - 1",
       {"muse_glimmer", "muse_spark", "mistral", "qwen3_window", "gpt_oss"},
       WidenWindows(-1)},
      {"windows one layer off",
       {"muse_glimmer", "muse_spark", "qwen3_window", "gpt_oss"},
       ShiftWindows},
      {"NoPE phase", {"muse_glimmer", "muse_spark"}, ShiftNope},
      {"no gate", {"muse_glimmer", "muse_spark"}, attention([](A* a) {
         a->set_output_gate(false);
       })},
      {"no sinks", {"gpt_oss"}, attention([](A* a) { a->set_sinks(false); })},
      {"query scale", {"muse_glimmer", "muse_spark"}, attention([](A* a) {
         a->set_query_scale(1.01 * a->query_scale());
       })},
      {"no cap", {"muse_glimmer", "muse_spark"}, [](M* m) { m->set_logit_cap(0); }},
      {"cap",
       {"muse_glimmer", "muse_spark"},
       [](M* m) { m->set_logit_cap(1.01 * m->logit_cap()); }},
      {"logit multiplier",
       {"muse_glimmer", "muse_spark"},
       [](M* m) { m->set_logit_multiplier(1.01 * m->logit_multiplier()); }},
      {"pairing", GoldenFamilies(),
       attention([](A* a) { a->mutable_rope()->set_pairing(INTERLEAVED); })},
      {"theta", GoldenFamilies(),
       attention([](A* a) { a->mutable_rope()->set_theta(1.01 * a->rope().theta()); })},
      {"no scaling", {"llama3_scaled", "qwen3_window", "gpt_oss"}, attention([](A* a) {
         a->mutable_rope()->clear_scaling();
       })},
      {"no head norm", {"qwen3", "qwen3_moe"}, attention([](A* a) {
         a->set_head_norm(HEAD_NORM_SCALELESS);
       })},
      {"no attention norm", GoldenFamilies(), [](M* m) { m->clear_attention_norm(); }},
      {"no output bias", {"gpt_oss"}, attention([](A* a) { a->set_output_bias(false); })},
      {"no qkv bias", {"gpt_oss"}, attention([](A* a) { a->set_qkv_bias(false); })},
      {"no router bias", {"gpt_oss"}, moe([](MoeConfig* c) { c->set_router_bias(false); })},
      {"top-k not normalised", {"qwen3_moe"}, moe([](MoeConfig* c) {
         c->set_normalize(!c->normalize());
       })},
      {"one expert fewer", {"qwen3_moe", "gpt_oss", "muse_spark"}, moe([](MoeConfig* c) {
         c->set_experts_per_token(c->experts_per_token() - 1);
       })},
      {"no output norm", {"muse_spark"}, attention([](A* a) { a->set_output_norm_epsilon(0); })},
      {"plain residual", {"muse_spark"}, [](M* m) { m->set_residual_gate_temperature(0); }},
      {"gate temperature",
       {"muse_spark"},
       [](M* m) { m->set_residual_gate_temperature(1.01 * m->residual_gate_temperature()); }},
      {"softmax router", {"muse_spark"}, moe([](MoeConfig* c) { c->set_score(ROUTER_SOFTMAX); })},
      {"no balancing bias", {"muse_spark"}, moe([](MoeConfig* c) {
         c->set_balancing(BALANCING_NONE);
       })},
      {"router multiplier", {"muse_spark"}, moe([](MoeConfig* c) {
         c->set_router_multiplier(1.01 * c->router_multiplier());
       })},
      {"routed scaling", {"muse_spark"}, moe([](MoeConfig* c) {
         c->set_scaling_factor(1.01 * c->scaling_factor());
       })},
      {"gain after the expert's norm", {"muse_spark"}, moe([](MoeConfig* c) {
         c->mutable_post_expert_norm()->set_style(RMS_GAIN_CENTERED);
       })},
      {"plain SwiGLU",
       {"gpt_oss"},
       [](M* m) {
         m->mutable_ffn()->set_activation(SWIGLU);
         m->mutable_ffn()->clear_activation_alpha();
         m->mutable_ffn()->clear_activation_limit();
       }},
      {"clamp limit",
       {"gpt_oss"},
       [](M* m) { m->mutable_ffn()->set_activation_limit(1.01 * m->ffn().activation_limit()); }},
  };
}

TEST(GoldenPerturbationTest, EachMovesTheLogitsFarBeyondTheBound) {
  ThreadPool pool(2);
  for (const std::string& family : GoldenFamilies()) {
    const GoldenCase golden = OpenGolden(family);
    int perturbed = 0;
    for (const Perturbation& perturbation : Perturbations()) {
      const auto& of = perturbation.families;
      if (std::find(of.begin(), of.end(), family) == of.end()) continue;
      ModelConfig model = golden.folder.model();
      perturbation.change(&model);
      const auto decoder = golden.NewDecoder(model, {});
      double moved = 0;
      for (std::size_t i = 0; i < golden.documents.size(); ++i) {
        moved = std::max(
            moved, GoldenDistance(Logits(*decoder, golden.documents[i], pool), golden.logits[i]));
      }
      EXPECT_GT(moved, 10 * kGoldenBound) << family << ": " << perturbation.name;
      ++perturbed;
    }
    EXPECT_GE(perturbed, 3) << family;
  }
}

}  // namespace
}  // namespace headwise
