#!/usr/bin/env python3
"""How much each detail of a family shows in its golden logits and gradients, and how far fp32 itself is from exact.

    python3 tests/golden/sensitivity.py            prints the tables of README.md

A test that compares within 1e-5 sees a mistake only if it moves the logits by more. Each row makes one mistake in
transformers and prints the relative difference ||a - b|| / ||b||, the smallest of the three documents. The second table
says how far the golden numbers are from the exact ones: the room that 1e-5 leaves to another order of operations.
"""

import copy

import torch
import transformers

import families
import generate
import results


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def text(config):
    return config.get_text_config()


def setting(**values):
    def change(config, model):
        for name, value in values.items():
            setattr(text(config), name, value)

    return change


def rope(**values):
    def change(config, model):
        text(config).rope_parameters = {**text(config).rope_parameters, **values}

    return change


def on_weights(suffix, function):
    """A change of the loaded weights."""

    def change(config, model):
        if model is not None:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name.endswith(suffix) and "vision" not in name:
                        parameter.copy_(function(parameter))

    return change


def on_modules(suffix, function):
    """A change of the modules of that name."""

    def change(config, model):
        if model is not None:
            for name, module in model.named_modules():
                if name.endswith(suffix):
                    function(module)

    return change


def attribute(**values):
    """For on_modules: other values of attributes."""

    def function(module):
        for name, value in values.items():
            setattr(module, name, value)

    return function


def pass_through(module):
    module.forward = lambda x: x


def scale_after_norm(module):
    """The gain of an input-scaled norm as that of a centred one."""
    module.forward = lambda x: module._norm(x) * (1 + module.weight)


def scale_before_norm(module):
    """The gain of a centred norm as that of an input-scaled one."""
    module.forward = lambda x: module._norm(x * (1 + module.weight))


def change_choice(function):
    """For Muse Spark's router: what it returns, after function(weights, scores of the chosen, bias of the chosen)."""

    def change(module):
        def hook(module, inputs, output):
            logits, weights, indices = output
            scores = logits.sigmoid().gather(1, indices)
            return logits, function(weights, scores, module.e_score_correction_bias[indices]), indices

        module.register_forward_hook(hook)

    return change


def weigh_with_bias(weights, scores, bias):
    return weights.sum(-1, keepdim=True) * (scores + bias) / (scores + bias).sum(-1, keepdim=True)


def swap_gates(decoder):
    for layer in decoder.layers:
        after_attention = layer.post_attention_residual_gate
        layer.post_attention_residual_gate = layer.post_feedforward_residual_gate
        layer.post_feedforward_residual_gate = after_attention


def pair_up(weight):
    """Rows of every head of 16 from halves to neighbours: what reading with the other pairing would do."""
    heads = weight.reshape(-1, 2, 8, weight.shape[-1])
    return heads.transpose(1, 2).reshape(weight.shape)


def swap_halves(weight):
    return weight.roll(weight.shape[0] // 2, 0)


def shift_layers(name):
    def change(config, model):
        values = getattr(text(config), name)
        setattr(text(config), name, values[1:] + values[:1])

    return change


_PAIRING = on_weights(("q_proj.weight", "k_proj.weight"), pair_up)
_KV_SWAP = on_weights(("k_proj.weight", "v_proj.weight"), swap_halves)
_WINDOWS = {"window 7": setting(sliding_window=7), "window 9": setting(sliding_window=9)}
_COMMON = {
    "pairing": _PAIRING,
    "kv heads swapped": _KV_SWAP,
    "eps 0.0101": setting(rms_norm_eps=0.0101),
    "theta 505": rope(rope_theta=505.0),
}

CHANGES = {
    "muse_glimmer": {
        **_COMMON,
        **_WINDOWS,
        "windows one layer off": shift_layers("layer_types"),
        "NoPE one layer off": shift_layers("layer_rope_theta"),
        "gate 1/2": on_weights("self_attn.gate_proj.weight", torch.zeros_like),
        "query scale 1.71": setting(qk_scale_factor=1.71),
        "multiplier 0.71": setting(output_multiplier=0.71),
        "no cap": setting(final_logit_softcapping=1e6),
        "cap 20.2": setting(final_logit_softcapping=20.2),
        "post eps 0.0303": setting(post_norm_eps=0.0303),
    },
    "muse_spark": {
        **_COMMON,
        **_WINDOWS,
        "windows one layer off": shift_layers("layer_types"),
        "NoPE one layer off": shift_layers("layer_rope_theta"),
        "gate 1/2": on_weights("self_attn.gate_proj.weight", torch.zeros_like),
        "query scale 1.31": setting(qk_scale_factor=1.31),
        "multiplier 0.71": setting(output_multiplier=0.71),
        "no cap": setting(final_logit_softcapping=1e6),
        "cap 20.2": setting(final_logit_softcapping=20.2),
        "post eps 0.0303": setting(post_norm_eps=0.0303),
        "no embedding norm": on_modules("embed_norm", pass_through),
        "no output norm": on_modules("self_attn.o_norm", pass_through),
        "no norm after attention": on_modules("post_attention_layernorm", pass_through),
        "temperature 0.404": setting(residual_gate_temperature=0.404),
        "residual gates swapped": on_modules("language_model", swap_gates),
        "no floor of alpha": on_modules("_residual_gate", attribute(eps=0.0)),
        "plain residual": on_modules("_residual_gate", attribute(forward=torch.add)),
        "router multiplier 1": on_modules("mlp.gate", attribute(output_multiplier=1.0)),
        "router multiplier 0.707": on_modules("mlp.gate", attribute(output_multiplier=0.707)),
        "no router bias": on_modules("mlp.gate", lambda m: m.e_score_correction_bias.zero_()),
        "router bias in the weights": on_modules("mlp.gate", change_choice(weigh_with_bias)),
        "softmax router": on_modules("mlp.gate.scoring_function", attribute(forward=lambda z: z.softmax(-1))),
        "top-k not normalised": on_modules("mlp.gate", change_choice(lambda weights, scores, bias: 1.3 * scores)),
        "routed scaling 1.313": setting(routed_scaling_factor=1.313),
        "no pre-expert norm": on_modules("mlp.pre_expert_norm", pass_through),
        "no post-expert norm": on_modules("post_expert_norm", pass_through),
        "pre-expert norm scales its input": on_modules("mlp.pre_expert_norm", scale_before_norm),
        "post-expert norm scales its output": on_modules("post_expert_norm", scale_after_norm),
        "post-ffn norm scales its output": on_modules("post_feedforward_layernorm", scale_after_norm),
        "gate and up swapped": on_weights("gate_up_proj", lambda w: w.roll(w.shape[1] // 2, 1)),
    },
    "llama3": _COMMON,
    "llama3_scaled": {
        **_COMMON,
        "no scaling": rope(rope_type="default"),
        "factor 8.1": rope(factor=8.1),
        "low factor 1.01": rope(low_freq_factor=1.01),
        "high factor 4.04": rope(high_freq_factor=4.04),
    },
    "mistral": {**_COMMON, **_WINDOWS},
    "qwen3": {
        **_COMMON,
        "q norm 1": on_weights("q_norm.weight", torch.ones_like),
        "k norm 1": on_weights("k_norm.weight", torch.ones_like),
    },
    "qwen3_window": {
        **_COMMON,
        **_WINDOWS,
        "windows one layer off": shift_layers("layer_types"),
        "no scaling": rope(rope_type="default"),
    },
    "qwen3_moe": {**_COMMON, "top-k not normalised": setting(norm_topk_prob=False)},
    "gpt_oss": {
        **_COMMON,
        **_WINDOWS,
        "windows one layer off": shift_layers("layer_types"),
        "no sinks": on_weights("sinks", lambda w: w - 1e4),
        "no scaling": rope(rope_type="default"),
        "truncated ramp": rope(truncate=True),
        "multiplier 1": rope(attention_factor=1.0),
        "limit 7.07": setting(swiglu_limit=7.07),
        "alpha 1.71": setting(swiglu_alpha=1.71),
        "gate and up swapped": on_weights("gate_up_proj", lambda w: w.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)),
    },
}


def load(name: str, change=None):
    family = families.FAMILIES[name]()
    config = copy.deepcopy(family.config)
    if change:
        change(config, None)
    model = family.model.from_pretrained(generate.DATA / name, config=config, attn_implementation="eager")
    model.set_experts_implementation("eager")
    if change:
        change(config, model)
    return model.eval()


def read(name: str) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    golden = results.safetensors.torch.load_file(generate.DATA / name / "golden.safetensors")
    documents = [golden[f"tokens.{i}"].long() for i in range(len(generate.LENGTHS))]
    return documents, golden


def print_changes() -> None:
    moves = {}  # change -> ["family 1.0e-03"]
    for name in families.FAMILIES:
        documents, golden = read(name)
        for what, change in CHANGES[name].items():
            model = load(name, change)
            with torch.no_grad():
                moved = [
                    relative(results.logits_of(model, document), golden[f"logits.{i}"])
                    for i, document in enumerate(documents)
                ]
            moves.setdefault(what, []).append(f"{name} {min(moved):.1e}")
    print("| change | logits move |\n|---|---|")
    for what, rows in moves.items():
        print(f"| {what} | {', '.join(rows)} |")


def closest_choice(name: str) -> float | None:
    """The smallest gap between what the last expert taken and the first left out were chosen by: near 0, rounding decides.

    That is the router's logit; in Muse Spark its sigmoid plus the bias.
    """
    model = load(name)
    gaps = []

    def keep(module, inputs, output):
        bias = getattr(module, "e_score_correction_bias", None)
        choice = output[0] if bias is None else output[0].sigmoid() + bias
        choice = choice.sort(-1, descending=True).values
        gaps.append((choice[:, module.top_k - 1] - choice[:, module.top_k]).min().item())

    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            module.register_forward_hook(keep)
    documents, _ = read(name)
    with torch.no_grad():
        for document in documents:
            results.logits_of(model, document)
    return min(gaps, default=None)


def print_rounding(name: str) -> None:
    """The golden numbers against the same model in double (transformers' norms stay in fp32)."""
    documents, golden = read(name)
    exact = results.golden(load(name).double(), documents)
    logits = max(relative(golden[k], exact[k]) for k in golden if k.startswith("logits"))
    gradients = {k: relative(golden[k], exact[k]) for k in golden if k.startswith("grad")}
    worst = max(gradients, key=gradients.get)
    gap = closest_choice(name)
    gap = "" if gap is None else f"{gap:.1e}"
    print(f"| {name} | {logits:.1e} | {gradients[worst]:.1e} | {worst.removeprefix('grad.')} | {gap} |")


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print_changes()
    print("\n| family | logits | worst gradient | of | closest router choice |\n|---|---|---|---|---|")
    for name in families.FAMILIES:
        print_rounding(name)


if __name__ == "__main__":
    main()
