"""What transformers computes from a model and documents: logits, loss, gradients under the names of the folder."""

import pathlib
import tempfile

import safetensors.torch
import torch


def logits_of(model, document: torch.Tensor) -> torch.Tensor:
    """[T, V], of one document by itself, so that no packed mask is needed."""
    return model(input_ids=document[None], use_cache=False).logits[0]


def loss_of(logits: list[torch.Tensor], documents: list[torch.Tensor]) -> torch.Tensor:
    """Mean over all documents' next-token targets: T - 1 of a document of T tokens."""
    total = sum(
        torch.nn.functional.cross_entropy(z[:-1], tokens[1:], reduction="sum")
        for z, tokens in zip(logits, documents)
    )
    return total / sum(len(tokens) - 1 for tokens in documents)


def read_folder(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= safetensors.torch.load_file(file)
    return tensors


def gradients_by_folder_name(model) -> dict[str, torch.Tensor]:
    """Every gradient under its tensor's name in the folder, which is not always that in memory (Qwen3-MoE's experts).

    transformers itself renames: the gradients are saved as if they were the weights, which they overwrite. Parameters
    that took no part (a vision tower) and buffers (a router's balancing bias) are left out.
    """
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.nan if tensor.grad is None else tensor.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = read_folder(pathlib.Path(folder))
    return {name: tensor.clone() for name, tensor in tensors.items() if not tensor.isnan().all()}


def golden(model, documents: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """tokens.I, logits.I, loss, grad.NAME. The model's weights are lost."""
    logits = [logits_of(model, document) for document in documents]
    loss = loss_of(logits, documents)
    loss.backward()
    tensors = {"loss": loss.detach().reshape(1)}
    for i, (tokens, z) in enumerate(zip(documents, logits)):
        tensors[f"tokens.{i}"] = tokens.to(torch.int32)
        tensors[f"logits.{i}"] = z.detach().contiguous()
    for name, gradient in gradients_by_folder_name(model).items():
        tensors[f"grad.{name}"] = gradient
    return tensors
