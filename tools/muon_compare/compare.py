#!/usr/bin/env -S python3 -B
"""The whole Muon step (momentum, orthogonalisation, write) on the CPU, Headwise's beside the standard form and PyTorch's.

    bazel build //tools/muon_compare:runner
    tools/muon_compare/compare.py [--case muse_17m] [--blocks head] [--threads 1 2] [--rounds N] [--json FILE]

needs numpy and torch >= 2.9; gram-newton-schulz (pip install --no-deps gram-newton-schulz) if it is there. The figures of
docs/performance.md: torch 2.15.0, gram-newton-schulz 0.1.6, oneDNN 2.6.3.

Contenders, all with Nesterov momentum 0.95, the quintic5 coefficients and the aspect scale, state and weights in fp32:

    ours          //kernels/muon_step, fp32 throughout
    onednn        the standard form, a batch of products at a time through oneDNN, fp32 throughout
    torch         torch.optim.Muon as it is; its Newton-Schulz works in bf16
    torch fp32    the same class, its Newton-Schulz (a function of this file) in fp32
    gram package  gram_newton_schulz.Muon without its GPU kernels, that is through PyTorch; its Newton-Schulz works in fp16

per head, per projection (q, k and v), or on whole fused weights. PyTorch's classes get heads and projections as parameters of their own
(the package's heads as one three-dimensional parameter, which it takes for a batch). All contenders take turns, round by round,
after one step to warm up; shown are the best and the median over rounds, and ratios of the best, which other work on the machine
disturbs least. The first step's update is compared with ours: relative Frobenius difference, column "differs".
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
import torch.optim._muon as torch_muon

try:
    import gram_newton_schulz
except ImportError:
    gram_newton_schulz = None

QUINTIC5 = (3.4445, -4.7750, 2.0315)
# Weights, query heads, kv heads, head_dim, model width.
CASES = {"muse_17m": (6, 8, 2, 64, 512), "llama_8b_layer": (1, 32, 8, 128, 4096)}
BLOCKS = ("head", "projection", "whole")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Runner:
    """//tools/muon_compare:runner, for one case."""

    def __init__(self, case, gradient, directory):
        program = os.path.join(REPOSITORY, "bazel-bin/tools/muon_compare/runner")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.file = os.path.join(directory, "matrix")
        gradient.tofile(self.file)
        self.ask("case", *case, self.file)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise SystemExit("the runner ended at: " + " ".join(map(str, words)))
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Native:
    """One of the runner's contenders."""

    def __init__(self, runner, blocks, implementation, threads):
        self.runner, self.words = runner, (blocks, implementation, threads)

    def step(self):
        return float(self.runner.ask("run", *self.words))

    def weight(self):
        self.runner.ask("dump", *self.words, self.runner.file)
        return numpy.fromfile(self.runner.file, numpy.float32)


def newton_schulz_in_fp32(gradient, coefficients, steps, eps):
    """The standard form as in torch.optim.Muon, but for the type."""
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    a, b, c = coefficients
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if gradient.size(0) > gradient.size(1) else x


class PyTorch:
    """An optimizer of PyTorch's kind over parameters that hold the blocks."""

    def __init__(self, make, case, blocks, batched, gradient, threads, newton_schulz):
        weights, queries, groups, dim, width = case
        rows = (queries + 2 * groups) * dim
        cuts = {"head": [dim] * (queries + 2 * groups), "whole": [rows],
                "projection": [queries * dim, groups * dim, groups * dim]}[blocks]
        stacked = torch.from_numpy(gradient).view(weights, rows, width)
        self.parameters = []
        if batched and blocks == "head":
            shapes = [stacked.view(-1, dim, width)]
        else:
            shapes = [part for weight in stacked for part in weight.split(cuts)]
        for part in shapes:
            parameter = torch.nn.Parameter(torch.zeros_like(part))
            parameter.grad = part.clone()
            self.parameters.append(parameter)
        self.optimizer = make(self.parameters)
        self.threads, self.newton_schulz = threads, newton_schulz

    def step(self):
        torch.set_num_threads(self.threads)
        torch_muon._zeropower_via_newtonschulz = self.newton_schulz
        start = time.perf_counter()
        self.optimizer.step()
        return time.perf_counter() - start

    def weight(self):
        return torch.cat([p.detach().reshape(-1) for p in self.parameters]).numpy()


def make_torch(parameters):
    return torch.optim.Muon(parameters, lr=1.0, weight_decay=0.0, momentum=0.95, ns_coefficients=QUINTIC5)


def make_gram_package(parameters):
    def aspect(lr, shape):
        return lr * max(1.0, shape[-2] / shape[-1]) ** 0.5

    return gram_newton_schulz.Muon(
        parameters, lr=1.0, weight_decay=0.0, momentum=0.95, adjust_lr=aspect, ns_coefficients=[QUINTIC5] * 5, ns_use_kernels=False,
        gram_newton_schulz_restart_iterations=[2])


def contenders(case, chosen, gradient, threads, runner):
    """{(implementation, blocks): contender}."""
    result = {}
    published = torch_muon._zeropower_via_newtonschulz
    for blocks in chosen:
        for implementation in ("ours", "onednn"):
            result[implementation, blocks] = Native(runner, blocks, implementation, threads)
        result["torch", blocks] = PyTorch(make_torch, case, blocks, False, gradient, threads, published)
        result["torch fp32", blocks] = PyTorch(make_torch, case, blocks, False, gradient, threads, newton_schulz_in_fp32)
        if gram_newton_schulz is not None:
            result["gram package", blocks] = PyTorch(make_gram_package, case, blocks, True, gradient, threads, published)
    return result


def measure(case, blocks, threads, rounds, directory):
    """{(implementation, blocks): (best and median seconds, difference from ours)}"""
    weights, queries, groups, dim, width = case
    rows = weights * (queries + 2 * groups) * dim
    gradient = numpy.random.default_rng(1).standard_normal((rows, width), numpy.float32)
    runner = Runner(case, gradient, directory)
    rivals = contenders(case, blocks, gradient, threads, runner)
    seconds = {key: [] for key in rivals}
    first = {}
    for key, rival in rivals.items():
        rival.step()
        first[key] = rival.weight().copy()
    differs = {}
    for key, weight in first.items():
        ours = first["ours", key[1]]
        differs[key] = float(numpy.linalg.norm(weight - ours) / numpy.linalg.norm(ours))
    first.clear()
    for _ in range(rounds):
        for key, rival in rivals.items():
            time.sleep(0.02)  # threads that spin after their last work go to sleep
            seconds[key].append(rival.step())
    runner.close()
    return {key: (min(values), statistics.median(values), differs[key]) for key, values in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--blocks", choices=BLOCKS, nargs="+", default=list(BLOCKS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, gram-newton-schulz {getattr(gram_newton_schulz, '__version__', 'absent')}, "
          f"{platform.processor() or platform.machine()}, load {os.getloadavg()[0]:.2f}")
    table = []
    for name in arguments.case:
        for threads in arguments.threads:
            with tempfile.TemporaryDirectory() as directory:
                result = measure(CASES[name], arguments.blocks, threads, arguments.rounds, directory)
            first_blocks = arguments.blocks[0]
            print(f"\n{name}, {threads} threads\n{'':14}{'blocks':12}{'best ms':>10}{'median ms':>11}{'/ ours':>9}"
                  f"{'/ ours, ' + first_blocks:>20}{'differs':>10}")
            for (implementation, blocks), (best, median, difference) in result.items():
                print(f"{implementation:14}{blocks:12}{1000 * best:10.2f}{1000 * median:11.2f}{best / result['ours', blocks][0]:9.2f}"
                      f"{best / result['ours', first_blocks][0]:20.2f}{difference:10.1e}", flush=True)
                table.append({"case": name, "threads": threads, "implementation": implementation, "blocks": blocks, "best": best,
                              "median": median, "differs": difference})
    print(f"\nload {os.getloadavg()[0]:.2f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
