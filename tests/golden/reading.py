"""Checkpoints for tests of reading: a tiny Llama in shards, in bf16 and in fp16, with logits in fp32."""

import pathlib

import safetensors.torch
import torch
import transformers

import results
import weights

# Name: storage type, largest file.
CHECKPOINTS = {
    "llama_sharded": (torch.float32, "25KB"),
    "llama_bf16": (torch.bfloat16, "1MB"),
    "llama_fp16": (torch.float16, "1MB"),
}


def write(folder: pathlib.Path, name: str, seed: int) -> None:
    dtype, max_shard_size = CHECKPOINTS[name]
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        rms_norm_eps=0.01,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    weights.draw(model, seed)
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    loaded = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    (document,) = weights.documents((19,), config.vocab_size, seed)
    with torch.no_grad():
        logits = results.logits_of(loaded, document)
    safetensors.torch.save_file(
        {"tokens.0": document.to(torch.int32), "logits.0": logits.contiguous()},
        folder / "golden.safetensors",
        metadata={"format": "pt"},
    )
    print(f"{name}: {sum(1 for _ in folder.glob('model*.safetensors'))} files")
