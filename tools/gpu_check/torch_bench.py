#!/usr/bin/env -S python3 -B
"""Optimizers and whole models in PyTorch: what Headwise's steps and models are compared with.

    torch_bench.py --rows FILE [--quick] [--seconds S] [--device cpu] [--tiny]

Appends a row for each measurement to FILE, a JSON object a line, in the form of muse bench --json (docs/performance.md), with "mode"
to tell PyTorch's ways apart. report.py sets rows of the same work side by side.

    {"name": "train/PyTorch/rate", "unit": "tokens/s", "value": 812000.0, "tokens": 8192, "rows": 1, "preset": "muse_17m",
     "layers": 6, "dtype": "BF16", "device": "cuda", "mode": "compile, AdamW"}
    {"name": "adamw/PyTorch/time", "unit": "us", "value": 612.0, "size": "160x64x8192", "device": "cuda", "mode": "fused"}

    muon_step, adamw   a step on as many blocks [64, 8192] or [128, 4096], fp32: torch.optim.Muon, a parameter a block; the same step,
                       its products in bf16 as there, on one stack of the blocks ("batched"); torch.optim.AdamW, fused
    train, muse_17m    whole steps of 16 x 512 tokens: forward, backward, clipping, optimizer; fp32 weights, bf16 autocast. Muon takes
                       the layers' matrices, whole, and AdamW (fused) the rest; or AdamW takes all
    train, prefill, decode, muse_spark
                       four layers of it (model_shapes.py): 1 x 4,096 tokens; one more token for each of 16 rows of 4,096.
                       fp32 weights with autocast in training, bf16 otherwise; AdamW

each eager, and compiled by torch.compile. A measurement that fails, or has not begun --seconds after the start, is a row with
"skipped" in place of a value. --tiny takes sizes for a test of this program. Exits 0, or 3 if PyTorch sees no GPU.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch

from model_shapes import SHAPES
from torch_models import Decoder

NO_GPU = 3
QUINTIC5 = (3.4445, -4.7750, 2.0315)


class Bench:
    """Where rows go, and until when."""

    def __init__(self, path, device, quick, seconds):
        self.path, self.device = path, torch.device(device)
        self.seconds_each = 0.3 if quick else 1.0
        self.deadline = time.monotonic() + seconds

    def add(self, work, mode, unit, measure, **more):
        """measure() returns the value, and may raise; `more` are further fields of the row."""
        figure = "rate" if unit == "tokens/s" else "time"
        row = {"name": f"{work}/PyTorch/{figure}", "unit": unit} | more | {"device": self.device.type, "mode": mode}
        if time.monotonic() > self.deadline:
            row["skipped"] = "out of time"
        else:
            try:
                row["value"] = measure()
            except torch.OutOfMemoryError:
                row["skipped"] = "out of memory"
            except Exception as error:  # pylint: disable=broad-except
                row["skipped"] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        value = f"{row['value']:14.1f} {unit}" if "value" in row else f"skipped: {row['skipped']}"
        print(f"{work:<10} {more.get('preset') or more['size']:<14} {mode:<16} {value}", flush=True)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds_of(self, step):
        """The median over three runs of as many steps as take about a third of the time, after three to warm up."""
        for _ in range(3):
            step()
        self.synchronize()
        start = time.perf_counter()
        step()
        self.synchronize()
        count = int(max(1, min(300, self.seconds_each / 3 / (time.perf_counter() - start))))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(count):
                step()
            self.synchronize()
            times.append((time.perf_counter() - start) / count)
        return statistics.median(times)

    def free(self):
        """After the last reference to what is no longer needed is gone."""
        torch._dynamo.reset()  # pylint: disable=protected-access
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


# --- Optimizers -------------------------------------------------------------------------------------------------------


def muon(parameters):
    """torch.optim.Muon, which PyTorch has from 2.9 on."""
    if not hasattr(torch.optim, "Muon"):
        raise RuntimeError("this PyTorch has no torch.optim.Muon")
    return torch.optim.Muon(parameters, lr=0.02, momentum=0.95, weight_decay=0.1, ns_coefficients=QUINTIC5)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def batched_muon_step(weight, momentum, gradient):
    """[B, D, N], D <= N: momentum with Nesterov, the standard form in bf16, decay and write."""
    momentum.lerp_(gradient, 0.05)
    x = gradient.lerp(momentum, 0.95).bfloat16()
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    a, b, c = QUINTIC5
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    weight.mul_(1 - 0.02 * 0.1).sub_(x, alpha=0.02)


def bench_optimizers(bench, sizes):
    for blocks, d, n in sizes:
        size = f"{blocks}x{d}x{n}"

        def values(shape=(blocks, d, n)):
            return torch.randn(shape, device=bench.device)

        def run_class(make, parts):
            parameters = [torch.nn.Parameter(part) for part in (values().unbind() if parts else [values()])]
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            return bench.seconds_of(make(parameters).step) * 1e6

        def run_batched(compiled):
            step = torch.compile(batched_muon_step, dynamic=False) if compiled else batched_muon_step
            arguments = values(), torch.zeros_like(values()), values()
            return bench.seconds_of(lambda: step(*arguments)) * 1e6

        bench.add("muon_step", "torch.optim.Muon", "us", lambda run=run_class: run(muon, True), size=size)
        bench.free()
        for compiled in (False, True):
            bench.add("muon_step", "batched, compile" if compiled else "batched", "us",
                      lambda run=run_batched, compiled=compiled: run(compiled), size=size)
            bench.free()
        bench.add("adamw", "fused", "us", lambda run=run_class: run(adamw, False), size=size)
        bench.free()


# --- Models -----------------------------------------------------------------------------------------------------------


def make_model(bench, shape):
    with torch.device(bench.device):
        return Decoder(SHAPES[shape])


def training_step(bench, model, batch, length, compiled, use_muon):
    """A function that makes one whole step."""
    tokens, targets = torch.randint(model.shape.vocab_size, (2, batch, length), device=bench.device)
    context = model.context(0, length)
    loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss
    matrices = [p for p in model.layers.parameters() if p.ndim == 2] if use_muon else []
    chosen = {id(p) for p in matrices}
    optimizers = [adamw([p for p in model.parameters() if id(p) not in chosen])]
    if matrices:
        optimizers.append(muon(matrices))

    def step():
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = loss_of(tokens, targets, context)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)

    return step


def fields(preset, shape, tokens, rows):
    """Of a row, as muse bench names them."""
    return {"tokens": tokens, "rows": rows, "preset": preset, "layers": SHAPES[shape].num_layers, "dtype": "BF16"}


def bench_training(bench, preset, shape, batch, length, optimizers):
    for compiled in (False, True):
        for use_muon in optimizers:

            def measure(compiled=compiled, use_muon=use_muon):
                step = training_step(bench, make_model(bench, shape), batch, length, compiled, use_muon)
                return batch * length / bench.seconds_of(step)

            mode = ("compile, " if compiled else "eager, ") + ("Muon" if use_muon else "AdamW")
            bench.add("train", mode, "tokens/s", measure, **fields(preset, shape, batch * length, 1))
            bench.free()


def bench_inference(bench, preset, shape, length, decoding):
    """Prefill of one sequence; the last token of `decoding` of them."""
    def prefill(model, compiled):
        tokens = torch.randint(model.shape.vocab_size, (1, length), device=bench.device)
        context = model.context(0, length)
        run = torch.compile(model.prefill, dynamic=False) if compiled else model.prefill
        return length / bench.seconds_of(lambda: run(tokens, context))

    def decode(model, compiled):
        tokens = torch.randint(model.shape.vocab_size, (decoding,), device=bench.device)
        context, cache = model.context(length - 1, 1), model.cache(decoding, length)
        run = model.decode
        if compiled:
            for tensor in (t for layer in cache for t in layer):
                torch._dynamo.mark_static_address(tensor)  # pylint: disable=protected-access
            run = torch.compile(run, dynamic=False, mode="reduce-overhead")
        return decoding / bench.seconds_of(lambda: run(tokens, cache, context, length - 1))

    for work, run, rows in (("prefill", prefill, 1), ("decode", decode, decoding)):
        for compiled in (False, True):

            def measure(run=run, compiled=compiled):
                with torch.no_grad():
                    return run(make_model(bench, shape).bfloat16(), compiled)

            bench.add(work, "compile" if compiled else "eager", "tokens/s", measure, **fields(preset, shape, length, rows))
            bench.free()


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch_bench: PyTorch sees no GPU", file=sys.stderr)
        return NO_GPU
    torch.backends.cuda.matmul.allow_tf32 = False
    bench = Bench(options.rows, options.device, options.quick or options.tiny, options.seconds)
    if options.tiny:
        bench_optimizers(bench, [(3, 4, 8)])
        bench_training(bench, "muse_spark", "tiny", 2, 16, (False, True))
        bench_inference(bench, "muse_spark", "tiny", 16, 2)
        return 0
    bench_optimizers(bench, [(160, 64, 8192)] if options.quick else [(160, 64, 8192), (48, 128, 4096)])
    bench_training(bench, "muse_17m", "muse_17m", 16, 512, (False,) if options.quick else (True, False))
    if not options.quick:
        bench_training(bench, "muse_spark", "muse_spark", 1, 4096, (False,))
        bench_inference(bench, "muse_spark", "muse_spark", 4096, 16)
    return 0


if __name__ == "__main__":
    sys.exit(main())
