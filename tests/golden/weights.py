"""Random weights that hide nothing: no gain of 1, no bias or sink of 0, logits and attention scores of several units.

A weight's values depend on the seed and its name only, so that adding one leaves the others as they were.
"""

import hashlib

import torch

# transformers' norms of gain 1 + weight.
_CENTRED = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "pre_feedforward_layernorm.weight",
    "post_feedforward_layernorm.weight",
    "pre_expert_norm.weight",
    "post_expert_norm.weight",
)
_MUSE = ("muse_glimmer_text", "muse_spark_text")


def generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def _mean_and_std(name: str, shape: torch.Size, config) -> tuple[float, float]:
    model_type = config.model_type
    last = name.rsplit(".", 2)[-2] if name.endswith(".weight") else name.rsplit(".", 1)[-1]
    if last == "sinks":
        return 0.5, 1.0
    if last == "bias" or last.endswith("_bias"):
        # Wide for the experts of GPT-OSS, so that the clamp at 7 holds some values back.
        return 0.0, (3.5 if last == "gate_up_proj_bias" else 0.3)
    if name.endswith("_residual_gate.gate"):
        # Mostly closed: open ones forget the residual, and rounding grows from layer to layer.
        return -0.5, 0.4
    if len(shape) == 1:  # gains
        centred = model_type in _MUSE and name.endswith(_CENTRED)
        return (0.0 if centred else 1.0), 0.25
    if last == "embed_tokens":
        # Tied, it is the head as well.
        return 0.0, (0.3 if config.tie_word_embeddings else 1.0)
    # Experts of GPT-OSS are stored [in, out], all else [out, in].
    fan_in = shape[-2] if model_type == "gpt_oss" and ".experts." in name else shape[-1]
    gain = 1.0
    if last == "lm_head":
        gain = 8.0 if model_type in _MUSE else 2.0  # so that Muse's cap of 20 bends the logits
    return 0.0, gain * fan_in**-0.5


def draw(model: torch.nn.Module, seed: int) -> None:
    """Fills every parameter of the model, and the buffers that a folder has. Tied ones are filled under the first name."""
    config = model.config.get_text_config()
    saved = model.state_dict()
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name in saved]
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *buffers]:
            mean, std = _mean_and_std(name, parameter.shape, config)
            values = torch.randn(parameter.shape, generator=generator(seed, name), dtype=torch.float64)
            if name.endswith("_residual_gate.gate"):
                values[0] = 11.25  # a gate of 4: over the temperature it reaches the floor of alpha
            parameter.copy_((mean + std * values).float())


def documents(lengths: tuple[int, ...], vocab: int, seed: int) -> list[torch.Tensor]:
    """Random tokens, one tensor [T] per document."""
    return [
        torch.randint(0, vocab, (length,), generator=generator(seed, f"document {i}"))
        for i, length in enumerate(lengths)
    ]
