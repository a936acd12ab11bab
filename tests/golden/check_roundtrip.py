#!/usr/bin/env python3
"""Loads folders that Headwise wrote in transformers and compares logits; prints a table for the documentation.

    python3 tests/golden/check_roundtrip.py ROOT [NAME ...] [--logits FILE] [--original ROOT] [--tolerance 1e-5]
    python3 tests/golden/check_roundtrip.py tests/golden/data --logits golden.safetensors    transformers against itself

ROOT/NAME is a folder of Hugging Face's form that `muse convert` wrote. FILE in it (logits.safetensors) holds tokens.I
[T] and logits.I [T, V] of our own forward pass, one I per document. Without NAMEs: every folder of ROOT that has FILE.
With --original, each tensor of the folder must have the bits of the one in that ROOT's folder of the same name.
Exits 1 if a folder does not load whole, a bit differs, or logits differ by more than the tolerance.
"""

import argparse
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

import results


# Parts beside the decoder, which transformers builds at random where a folder has none of their tensors.
TOWERS = ("model.vision_tower.", "model.vision_adapter.", "model.vision_projection.", "model.audio_tower.")


def load(folder: pathlib.Path):
    """The model in fp32, and the names of tensors that are missing, left over or of another shape."""
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    model, info = getattr(transformers, architecture).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model.set_experts_implementation("eager")
    if not any(name.startswith(TOWERS) for name in results.read_folder(folder)):
        info["missing_keys"] = [key for key in info["missing_keys"] if not key.startswith(TOWERS)]
    problems = [f"{what.replace('_', ' ')}: {sorted(map(str, keys))}" for what, keys in info.items() if keys]
    return model.eval(), problems


def differing_tensors(folder: pathlib.Path, original: pathlib.Path) -> list[str]:
    """Tensors of either folder that the other has not, or not with the same type, shape and bits."""
    ours, theirs = results.read_folder(folder), results.read_folder(original)

    def same(name: str) -> bool:
        if name not in ours or name not in theirs:
            return False
        a, b = ours[name], theirs[name]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))

    return sorted(name for name in ours.keys() | theirs.keys() if not same(name))


def compare(model, expected: dict[str, torch.Tensor]) -> dict[str, float]:
    relative, largest, tokens, agree = 0.0, 0.0, 0, 0
    for i in range(sum(name.startswith("tokens.") for name in expected)):
        document, ours = expected[f"tokens.{i}"].long(), expected[f"logits.{i}"].double()
        with torch.no_grad():
            theirs = results.logits_of(model, document).double()
        relative = max(relative, ((ours - theirs).norm() / theirs.norm()).item())
        largest = max(largest, (ours - theirs).abs().max().item())
        tokens += len(document)
        agree += (ours.argmax(-1) == theirs.argmax(-1)).sum().item()
    return {"relative": relative, "largest": largest, "tokens": tokens, "agree": agree}


def check(name: str, arguments) -> bool:
    folder = arguments.root / name
    model, problems = load(folder)
    expected = safetensors.torch.load_file(folder / arguments.logits)
    if "tokens.0" not in expected:
        sys.exit(f"check_roundtrip.py: {folder / arguments.logits}: no tokens.0; it holds {sorted(expected)[:4]}")
    row = compare(model, expected)
    if not row["relative"] <= arguments.tolerance:
        problems.append(f"logits differ by {row['relative']:.1e}, more than {arguments.tolerance:.0e}")
    bits = ""
    if arguments.original:
        differing = differing_tensors(folder, arguments.original / name)
        bits = f" {'no' if differing else 'yes'} |"
        if differing:
            problems.append(f"{len(differing)} tensors are not the original's bits: {', '.join(differing[:3])}")
    print(
        f"| {name} | {type(model).__name__} | {sum(p.numel() for p in model.parameters())} | {row['tokens']} "
        f"| {row['relative']:.1e} | {row['largest']:.1e} | {row['agree']}/{row['tokens']} |{bits}"
    )
    for problem in problems:
        print(f"check_roundtrip.py: {folder}: {problem}", file=sys.stderr)
    return not problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--logits", default="logits.safetensors")
    parser.add_argument("--original", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    names = arguments.names or sorted(p.parent.name for p in arguments.root.glob(f"*/{arguments.logits}"))
    if not names:
        sys.exit(f"check_roundtrip.py: no folder of {arguments.root} has {arguments.logits}")
    bits = (" bits kept |", "---|") if arguments.original else ("", "")
    print(f"| folder | class | parameters | tokens | relative difference | largest | same best token |{bits[0]}")
    print(f"|---|---|---|---|---|---|---|{bits[1]}")
    passed = [check(name, arguments) for name in names]
    print(f"\ntransformers {transformers.__version__}, torch {torch.__version__}, fp32, eager, one thread")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
