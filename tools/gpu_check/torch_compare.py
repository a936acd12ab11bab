#!/usr/bin/env -S python3 -B
"""prepare_qkv's work in PyTorch, eager and compiled: is it as close to the CUDA kernels as it should be, and how fast is it.

    torch_compare.py --dump DIRECTORY [--json FILE] [--quick] [--seconds S] [--device cpu]

DIRECTORY holds what gpu_benchmark --dump wrote: inputs, outputs and gradients of one size, with RoPE and without. Eager PyTorch,
with values rounded to bf16 where the contract rounds them, must be close: at most 1e-4 of the outputs differ, each by at most 2
units in the last place of the larger of its rotary pair (docs/numerics.md, section 10); of the packed gradient, where a
difference may cancel, of the largest of its head. PyTorch's compiler leaves out the roundings between operations that it
fuses, which makes it close to Rounding::kOnlyAtEnd; where it splits the work is its own affair, so this is shown, not required.

Times are medians over replays of CUDA graphs in which the work is repeated on rotating inputs; where PyTorch cannot capture it,
over the same repetitions without a graph, and the result says so. The backward's time is that of forward and backward less the
forward's.

--device cpu checks, and measures nothing. Compiling takes seconds for every size: what has not begun --seconds after the start
is left out, and the result says so. Exits 0 if all is well, 1 if not, 3 if PyTorch sees no GPU.
"""

import argparse
import json
import os
import statistics
import struct
import sys
import time

import torch

GROUPS, GROUP_SIZE, DIM = 16, 8, 64
HEADS, SLOTS = GROUPS * GROUP_SIZE, GROUPS * (GROUP_SIZE + 2)
EPSILON = 1e-6
NO_GPU = 3

_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64}


def read_safetensors(path, device):
    """{name: tensor}. The format is eight bytes of size, a JSON header, the data."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = torch.frombuffer(data, dtype=torch.uint8)[begin:end].view(_DTYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"]).to(device)
    return tensors


# --- The work ---------------------------------------------------------------------------------------------------------


def head_norm(x, weight):
    """Gain-centred RMS norm of every head, in fp32, rounded once."""
    wide = x.float()
    root = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return (wide * root * (1 + weight)).to(x.dtype)


def rotate(y, cos, sin):
    """RoPE by halves, in fp32, rounded once. cos, sin [T, 1, D/2]."""
    first, second = y.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(y.dtype)


def prepare(packed, q_weight, k_weight, cos, sin):
    """q [T, H, D], k and v [T, G, D] of packed [T, slots * D]; cos and sin are None without RoPE."""
    q, k, v = packed.view(-1, GROUPS, GROUP_SIZE + 2, DIM).split([GROUP_SIZE, 1, 1], 2)
    q = head_norm(q.reshape(-1, HEADS, DIM), q_weight)
    k = head_norm(k.reshape(-1, GROUPS, DIM), k_weight)
    if cos is not None:
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    return q, k, v.reshape(-1, GROUPS, DIM).contiguous()


# --- Closeness --------------------------------------------------------------------------------------------------------


def compare(actual, expected, measured_at):
    """(elements that differ, the worst difference in bf16 ulp). The last dimension is a head.

    An ulp is measured at the larger of the two values ("element"), of those and their partners' half a head away ("pair"), or of
    all of the head ("head").
    """
    a, e = actual.detach().float(), expected.float()
    size = torch.maximum(a.abs(), e.abs())
    if measured_at == "pair":
        size = torch.maximum(size, size.roll(DIM // 2, -1))
    elif measured_at == "head":
        size = size.amax(-1, keepdim=True).expand_as(size)
    exponent = torch.frexp(size.clamp(min=2.0**-126))[1]
    ulps = (a - e).abs() / torch.ldexp(torch.ones_like(e), exponent - 8)
    return int((a != e).sum()), float(ulps.max())


def check(layer, rounding, mode, function, tensors):
    """Runs forward and backward on what was dumped. Returns the rows of the result."""
    rope = "cos" in tensors
    at = tensors["positions"]
    cos, sin = (tensors[name][at][:, None, :] if rope else None for name in ("cos", "sin"))
    packed = tensors["packed"].clone().requires_grad_()
    weights = [tensors[name].clone().requires_grad_() for name in ("q_weight", "k_weight")]
    outputs = function(packed, *weights, cos, sin)
    gradients = torch.autograd.grad(outputs, [packed, *weights], [tensors[name] for name in ("dq", "dk", "dv")])
    rows, common = [], {"layer": layer, "rounding": rounding, "mode": mode, "required": mode == "eager"}

    def add(name, actual, expected, measured_at):
        differing, worst = compare(actual, expected, measured_at)
        rows.append(common | {"tensor": name, "elements": expected.numel(), "differing": differing, "worst_ulp": worst,
                              "close": differing <= 1e-4 * expected.numel() and worst <= 2})

    for name, output in zip(("q", "k", "v"), outputs):
        add(name, output, tensors[name], "pair" if rope and name != "v" else "element")
    add("dpacked", gradients[0].view(-1, SLOTS, DIM), tensors["dpacked"].view(-1, SLOTS, DIM), "head")
    for name, gradient in zip(("dq_weight", "dk_weight"), gradients[1:]):
        expected = tensors[name + "_per_group"].double().sum(0)
        worst = float((gradient.double() - expected).abs().max() / expected.abs().max())
        rows.append(common | {"tensor": name, "elements": expected.numel(), "relative": worst,
                              "close": worst <= 1e-5})  # sums in fp32, in another order
    return rows


# --- Time -------------------------------------------------------------------------------------------------------------


def seconds_of(run, stream):
    """Of the second of two runs: the host is then ahead of the GPU."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        run()
        begin.record(stream)
        run()
        end.record(stream)
    stream.synchronize()
    return begin.elapsed_time(end) * 1e-3


def time_work(work, sets, seconds):
    """{"median_us", "graph", ...} of work(set), repeated on rotating inputs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(max(sets, 3)):
            work(i % sets)
    stream.synchronize()

    def repeat():
        for i in range(repetitions):
            work(i % sets)

    repetitions = sets
    repetitions = sets * max(1, min(64 // sets, int(5e-4 / seconds_of(repeat, stream)) + 1))
    why = None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            repeat()
        run = graph.replay
        seconds_of(run, stream)
    except Exception as error:  # pylint: disable=broad-except
        torch.cuda.synchronize()
        why, run = str(error).splitlines()[0][:200], repeat
    samples, start = [], time.monotonic()
    while len(samples) < 5 or (len(samples) < 300 and time.monotonic() - start < seconds):
        samples.append(seconds_of(run, stream) / repetitions)
    result = {"median_us": statistics.median(samples) * 1e6, "best_us": min(samples) * 1e6, "graph": why is None,
              "replays": len(samples), "repetitions": repetitions, "sets": sets}
    if why is not None:
        result["no_graph_because"] = why
    return result


class Layer:
    """Inputs of one size, several sets of them."""

    def __init__(self, rope, tokens, first_position, device):
        l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
        self.sets = max(2, min(32, 4 * l2_bytes // (tokens * 2 * SLOTS * DIM * 2) + 1))
        generator = torch.Generator(device=device).manual_seed(1)

        def random(*shape):
            return torch.randn(shape, generator=generator, device=device).to(torch.bfloat16)

        self.packed = [random(tokens, SLOTS * DIM).requires_grad_() for _ in range(self.sets)]
        self.d = [random(tokens, HEADS, DIM), random(tokens, GROUPS, DIM), random(tokens, GROUPS, DIM)]
        self.weights = [(torch.randn(DIM, generator=generator, device=device) / 8).requires_grad_() for _ in range(2)]
        self.cos = self.sin = None
        if rope:
            frequency = 10000.0**(-torch.arange(0, DIM, 2, device=device).double() / DIM)
            angle = (torch.arange(tokens, device=device).double() + first_position)[:, None] * frequency
            self.cos, self.sin = angle.cos().float()[:, None, :], angle.sin().float()[:, None, :]

    def forward(self, function, i):
        return function(self.packed[i], *self.weights, self.cos, self.sin)

    def forward_and_backward(self, function, i):
        return torch.autograd.grad(self.forward(function, i), [self.packed[i], *self.weights], self.d)


def sizes(quick):
    """(use, tokens), the most telling first."""
    if quick:
        return [("train", 4096), ("prefill", 2048), ("decode", 64), ("decode", 1)]
    return [("train", 4096), ("prefill", 16384), ("decode", 64), ("train", 16384), ("train", 2048), ("prefill", 2048),
            ("decode", 1), ("decode", 8), ("decode", 256)]


def measure(modes, quick, deadline, device):
    """Yields the rows of the result."""
    for use, tokens in sizes(quick):
        for layer_name in ("rope", "nope"):
            layer = Layer(layer_name == "rope", tokens, 30000 if use == "decode" else 0, device)
            for mode, function in modes.items():
                row = {"layer": layer_name, "use": use, "pass": "forward", "tokens": tokens, "mode": mode}
                if time.monotonic() > deadline:
                    yield row | {"skipped": "out of time"}
                    continue
                seconds = 0.2 if quick else 0.5
                if use != "train":
                    with torch.no_grad():
                        times = time_work(lambda i: layer.forward(function, i), layer.sets, seconds)
                    yield row | times
                    continue
                forward = time_work(lambda i: layer.forward(function, i), layer.sets, seconds)
                both = time_work(lambda i: layer.forward_and_backward(function, i), layer.sets, seconds)
                yield row | forward
                backward = {"median_us": both["median_us"] - forward["median_us"],
                            "graph": forward["graph"] and both["graph"], "forward_and_backward_us": both["median_us"]}
                yield row | {"pass": "backward"} | backward
            del layer
            torch.cuda.empty_cache()


def save(result, path):
    """Writes the result, whole or not at all."""
    if path:
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
        os.replace(path + ".tmp", path)


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump", required=True)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch_compare: PyTorch sees no GPU", file=sys.stderr)
        return NO_GPU

    torch.backends.cuda.matmul.allow_tf32 = False
    # One compilation per size, as a program with a fixed size has.
    torch._dynamo.config.automatic_dynamic_shapes = False  # pylint: disable=protected-access
    torch._dynamo.config.cache_size_limit = 64  # pylint: disable=protected-access
    modes = {"eager": prepare, "compile": torch.compile(prepare, fullgraph=True, dynamic=False)}
    result = {"torch": torch.__version__, "checks": [], "cases": []}
    for layer in ("rope", "nope"):
        for mode, rounding in (("eager", "after_weight"), ("compile", "only_at_end")):
            path = os.path.join(options.dump, f"{layer}.{rounding}.safetensors")
            result["checks"] += check(layer, rounding, mode, modes[mode], read_safetensors(path, options.device))
    for row in result["checks"]:
        how_far = (f"{row['relative']:.1e} relative" if "relative" in row else
                   f"{row['differing']} of {row['elements']} differ, by at most {row['worst_ulp']:.2g} ulp")
        verdict = "" if row["close"] else "  TOO FAR" if row["required"] else "  (not required)"
        print(f"{row['layer']} {row['mode']:<7} against {row['rounding']:<12} {row['tensor']:<9} {how_far}{verdict}")
    save(result, options.json)
    if options.device == "cuda":
        result["device"] = torch.cuda.get_device_name()
        for row in measure(modes, options.quick, deadline, options.device):
            result["cases"].append(row)
            save(result, options.json)  # what is measured is kept, whatever follows
            figure = (row["skipped"] if "skipped" in row else
                      f"{row['median_us']:9.2f} us" + ("" if row["graph"] else "  (no graph)"))
            print(f"{row['layer']} {row['use']:<7} {row['pass']:<8} {row['tokens']:>6} {row['mode']:<7} {figure}", flush=True)
    return 0 if all(row["close"] or not row["required"] for row in result["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
