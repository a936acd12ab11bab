"""inv_freq and the multiplier of cos and sin of every supported RoPE scaling, as transformers computes them in fp32."""

import json
import pathlib

import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
_GPT_OSS = {**_YARN, "rope_theta": 150000.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}

# What config.json of a Llama says beside its sizes, in the forms of old folders and of new ones.
CASES = [
    {"head_dim": 64},
    {"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": None},
    {"head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    {"head_dim": 64, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_parameters": _GPT_OSS},
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_parameters": {**_GPT_OSS, "truncate": True}},
    {"head_dim": 128, "max_position_embeddings": 131072, "rope_theta": 1000000.0, "rope_scaling": _YARN},
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_parameters": {**_YARN, "attention_factor": 0.75}},
    {
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_parameters": {**_YARN, "mscale": 0.707, "mscale_all_dim": 1.5},
    },
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_parameters": {**_YARN, "mscale": 0.707}},
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_parameters": {**_YARN, "factor": None}},
    # lo == hi once both are clamped to 0: the ramp's width becomes 0.001.
    {
        "head_dim": 16,
        "max_position_embeddings": 64,
        "rope_parameters": {**_YARN, "factor": 16.0, "original_max_position_embeddings": 4},
    },
]


def _table(case: dict) -> dict:
    config = transformers.LlamaConfig.from_dict(json.loads(json.dumps(case)))
    rope_type = config.rope_parameters["rope_type"]
    if rope_type == "default":
        init = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters
        inv_freq, multiplier = init(config)
    else:
        inv_freq, multiplier = ROPE_INIT_FUNCTIONS[rope_type](config)
    return {"config": case, "multiplier": float(multiplier), "inv_freq": inv_freq.double().tolist()}


def write(folder: pathlib.Path) -> None:
    lines = ",\n".join(json.dumps(_table(case)) for case in CASES)
    (folder / "rope_tables.json").write_text(f"[\n{lines}\n]\n")
    print(f"rope_tables: {len(CASES)}")
