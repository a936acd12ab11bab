"""The small models that golden data is made of: one configuration per family, as transformers' own config class.

Sizes are small enough to commit and large enough to tell apart what can be confused: more layers than the layer pattern
is long and not a multiple of it, H != G, documents longer than two windows, more tokens than an attention tile of 64.
Epsilons are large (0.01, 0.03), so that a wrong one shows; so is every other constant that a wrong reading could hide.
"""

import dataclasses

import transformers

VOCAB = 160
WINDOW = 8

_SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=32,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    rms_norm_eps=0.01,
    bos_token_id=None,
    eos_token_id=None,
)
_TWO_LAYERS = {**_SIZES, "num_hidden_layers": 2}
_EXPERTS = {**_SIZES, "intermediate_size": 12, "num_experts_per_tok": 2}


@dataclasses.dataclass(frozen=True)
class Family:
    config: transformers.PreTrainedConfig
    model: type  # the class that has the head


def _muse_glimmer() -> Family:
    text = transformers.MuseGlimmerTextConfig(
        **_SIZES,
        sliding_window=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        qk_scale_factor=1.7,
        output_multiplier=0.7,
        final_logit_softcapping=20.0,
        post_norm_eps=0.03,
    )
    # As small as it goes: it is carried through and not run.
    vision = transformers.MuseGlimmerVisionConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        patch_size=2,
        pos_emb_height=2,
        pos_emb_width=2,
        max_position_embeddings=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config = transformers.MuseGlimmerConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=159,
        video_token_id=157,
        out_hidden_size=32,
        projector_hidden_size=8,
    )
    return Family(config, transformers.MuseGlimmerForConditionalGeneration)


def _muse_spark() -> Family:
    """Layers 0 and 4 are NoPE, 1 to 3 slide; layer 0 is dense, the others have experts."""
    text = transformers.MuseSparkTextConfig(
        **{**_SIZES, "num_hidden_layers": 5, "num_attention_heads": 8, "intermediate_size": 40},
        sliding_window=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        qk_scale_factor=1.3,
        output_multiplier=0.7,
        final_logit_softcapping=20.0,
        post_norm_eps=0.03,
        residual_gate_temperature=0.4,
        mlp_layer_types=["dense"] + ["sparse"] * 4,
        num_local_experts=6,
        num_experts_per_tok=2,
        moe_hidden_size=32,
        moe_intermediate_size=24,
        routed_scaling_factor=1.3,
    )
    # Both towers as small as they go: they are carried through and not run.
    vision = transformers.MuseSparkVisionConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        patch_size=2,
        pos_emb_height=2,
        pos_emb_width=2,
        max_position_embeddings=4,
        rope_parameters={"rope_type": "axial", "rope_theta": 10000.0},
    )
    audio = transformers.MuseSparkAudioConfig(
        patch_sizes=[2],
        hidden_sizes=[8],
        depths=[1],
        num_hidden_layers=1,
        mlp_ratio=1.0,
        conv_kernel_size=3,
        out_hidden_size=64,
    )
    config = transformers.MuseSparkConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        image_token_id=159,
        video_token_id=157,
        audio_token_id=156,
        out_hidden_size=32,
        projector_hidden_size=8,
    )
    return Family(config, transformers.MuseSparkForConditionalGeneration)


def _llama3() -> Family:
    config = transformers.LlamaConfig(
        **_SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    return Family(config, transformers.LlamaForCausalLM)


def _llama3_scaled() -> Family:
    """Llama 3.2's form: tied, with llama3 scaling, some of whose 8 frequencies fall into each of its three ranges."""
    config = transformers.LlamaConfig(
        **_TWO_LAYERS,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    return Family(config, transformers.LlamaForCausalLM)


def _mistral() -> Family:
    config = transformers.MistralConfig(
        **_SIZES,
        sliding_window=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    return Family(config, transformers.MistralForCausalLM)


def _qwen3() -> Family:
    config = transformers.Qwen3Config(
        **_SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    return Family(config, transformers.Qwen3ForCausalLM)


def _qwen3_window() -> Family:
    """The window that Qwen3 may have: layer 0 is full, layer 1 slides."""
    config = transformers.Qwen3Config(
        **_TWO_LAYERS,
        use_sliding_window=True,
        sliding_window=WINDOW,
        max_window_layers=1,
        rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    )
    return Family(config, transformers.Qwen3ForCausalLM)


def _qwen3_moe() -> Family:
    config = transformers.Qwen3MoeConfig(
        **_EXPERTS,
        num_experts=4,
        moe_intermediate_size=12,
        norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    return Family(config, transformers.Qwen3MoeForCausalLM)


def _gpt_oss() -> Family:
    config = transformers.GptOssConfig(
        **_EXPERTS,
        num_local_experts=4,
        sliding_window=WINDOW,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 8.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
    )
    return Family(config, transformers.GptOssForCausalLM)


FAMILIES = {
    "muse_glimmer": _muse_glimmer,
    "muse_spark": _muse_spark,
    "llama3": _llama3,
    "llama3_scaled": _llama3_scaled,
    "mistral": _mistral,
    "qwen3": _qwen3,
    "qwen3_window": _qwen3_window,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
}


def build(family: Family):
    """A model of the family in fp32, with attention and experts as plain operations."""
    model = family.model._from_config(family.config, attn_implementation="eager")
    model.set_experts_implementation("eager")
    return model.float().eval()
