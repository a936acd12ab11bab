#!/usr/bin/env python3
"""Writes tests/golden/data: small models of other families and what transformers computes with them (README.md).

    python3 tests/golden/generate.py            all
    python3 tests/golden/generate.py gpt_oss    some, by name

Twice on one machine gives the same bytes. Only for development: nothing is generated when Headwise builds or tests.
"""

import pathlib
import shutil
import sys

import safetensors
import safetensors.torch
import torch
import transformers

import families
import reading
import results
import rope_tables
import weights

VERSIONS = {"torch": "2.15.0", "transformers": "5.24.0", "safetensors": "0.8.0"}
SEED = 20
LENGTHS = (19, 25, 21)  # each longer than two windows; 65 tokens in all
DATA = pathlib.Path(__file__).resolve().parent / "data"


def check_versions() -> None:
    for module in (torch, transformers, safetensors):
        found = module.__version__.split("+")[0]
        if found != VERSIONS[module.__name__]:
            sys.exit(
                f"generate.py: {module.__name__} {found} found, {VERSIONS[module.__name__]} expected; install that one "
                "or change VERSIONS and README.md with the data"
            )


def check(name: str, tensors: dict[str, torch.Tensor]) -> None:
    for key, tensor in tensors.items():
        if not tensor.isfinite().all():
            sys.exit(f"generate.py: {name}: {key} is not finite")
        if not tensor.count_nonzero():
            sys.exit(f"generate.py: {name}: {key} is all zero; another SEED")


def check_documents(name: str, config, documents: list[torch.Tensor]) -> None:
    """A token that stands for an image, a video or audio is embedded as token 0: no document may have one."""
    for field in ("image_token_id", "video_token_id", "audio_token_id"):
        token = getattr(config, field, None)
        if token is not None and (torch.cat(documents) == token).any():
            sys.exit(f"generate.py: {name}: a document has token {token}, the config's {field}; choose another id")


def write_family(name: str) -> None:
    folder = DATA / name
    model = families.build(families.FAMILIES[name]())
    weights.draw(model, SEED)
    model.save_pretrained(folder)
    documents = weights.documents(LENGTHS, families.VOCAB, SEED)
    check_documents(name, model.config, documents)
    tensors = results.golden(model, documents)
    check(name, tensors)
    safetensors.torch.save_file(tensors, folder / "golden.safetensors", metadata={"format": "pt"})
    count = sum(p.numel() for p in model.parameters())
    print(f"{name}: {count} parameters, {len(tensors)} tensors, loss {tensors['loss'].item():.4f}")


def main() -> None:
    check_versions()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    writers = {name: lambda name=name: write_family(name) for name in families.FAMILIES}
    writers |= {
        name: lambda name=name: reading.write(DATA / name, name, SEED) for name in reading.CHECKPOINTS
    }
    writers["rope_tables"] = lambda: rope_tables.write(DATA / "rope_tables")
    names = sys.argv[1:] or list(writers)
    for name in names:
        if name not in writers:
            sys.exit(f"generate.py: no '{name}'; there are {', '.join(writers)}")
        shutil.rmtree(DATA / name, ignore_errors=True)
        (DATA / name).mkdir(parents=True)
        writers[name]()


if __name__ == "__main__":
    main()
