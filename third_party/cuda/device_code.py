#!/usr/bin/env -S python3 -B
"""What nvcc made of kernels: prints their registers, shared memory and spills, and checks what device code must not hold.

* PTX: no approximate instruction (.approx, .full), none that flushes subnormals (.ftz), and no addition or multiplication without a
  rounding (.rn), which ptxas may contract to an fma: the numerics contract has none.
* PTX: kernels that --instruction names have an instruction, or one of several, A|B.
* ptxas reports: kernels that --no-spills names use no local memory: no stack frame, no spill store, no spill load.

    device_code.py [--no-spills REGEX]... [--instruction REGEX=OPCODE]... FILE...

FILEs are the output groups `ptx` and `ptxas` of a cuda_library. A REGEX is searched for in the kernel's name with its template
arguments; one that fits no kernel is an error. Exits 1 if a check fails.
"""

import argparse
import collections
import re
import subprocess
import sys

# An opcode's parts: "div.full.f32", "rsqrt.approx.ftz.f32".
_FORBIDDEN = re.compile(r"^\s*(?:@!?%\w+\s+)?(\w+(?:[.:]+\w+)*\.(?:approx|full|ftz)\b[.\w]*"
                        r"|(?:add|sub|mul)(?:\.sat)?\.f(?:16|16x2|32|32x2|64))\s")

_PTX_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)", re.MULTILINE)

_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


class Kernel:
    """What ptxas reports for one kernel and one GPU. Of a function that it calls, the local memory counts too."""

    def __init__(self, symbol, arch):
        self.symbol, self.arch = symbol, arch
        self.name = symbol
        self.registers = self.shared = self.stack = self.spill_stores = self.spill_loads = 0

    def uses_local_memory(self):
        return bool(self.stack or self.spill_stores or self.spill_loads)


def parse_report(text):
    """The kernels of one ptxas -v report."""
    kernels = []
    for line in text.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            kernels.append(Kernel(*entry.groups()))
        if not kernels:
            continue
        kernel = kernels[-1]
        local = _LOCAL.search(line)
        if local:
            stack, stores, loads = map(int, local.groups())
            kernel.stack = max(kernel.stack, stack)
            kernel.spill_stores += stores
            kernel.spill_loads += loads
        used = _USED.search(line)
        if used:
            kernel.registers = int(used.group(1))
        shared = _SHARED.search(line)
        if shared:
            kernel.shared = int(shared.group(1))
        cumulative = _CUMULATIVE.search(line)
        if cumulative:
            kernel.stack = max(kernel.stack, int(cumulative.group(1)))
    return kernels


def forbidden_instructions(text):
    """[(line, opcode)] of the instructions in PTX that the numerics contract rules out."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FORBIDDEN.match(line)
        if match:
            found.append((number, match.group(1)))
    return found


def opcodes_by_kernel(text):
    """{symbol: opcodes} of the kernels of a PTX file."""
    entries = list(_PTX_ENTRY.finditer(text))
    ends = [entry.start() for entry in entries[1:]] + [len(text)]
    return {entry.group(1): set(re.findall(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:[.:]+\w+)+)", text[entry.end():end], re.MULTILINE))
            for entry, end in zip(entries, ends)}


def short_name(demangled):
    """"void headwise::cuda::(anonymous namespace)::Norm<float, 64>(float const*)" -> "Norm<float, 64>"."""
    name = demangled.replace("(anonymous namespace)::", "")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    return re.sub(r"\b[A-Za-z_]\w*::", "", name.removeprefix("void ")).replace("(bool)", "").replace("(int)", "")


def demangle(symbols):
    """{symbol: short name}; the symbol itself where there is no c++filt."""
    try:
        output = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {symbol: symbol for symbol in symbols}
    return {symbol: short_name(line) for symbol, line in zip(symbols, output.splitlines())}


def table(kernels):
    """One line per kernel; where GPUs differ, the figures of each."""
    archs = sorted({k.arch for k in kernels}, key=lambda arch: int(re.sub(r"\D", "", arch)))
    by_name = collections.defaultdict(dict)
    for kernel in kernels:
        by_name[kernel.name][kernel.arch] = kernel

    def row(name, figure):
        return [str(figure(by_name[name][arch])) if arch in by_name[name] else "-" for arch in archs]

    width = max([len("kernel")] + [len(name) for name in by_name])
    lines = [f"{'kernel':<{width}}  {'registers on ' + ' '.join(archs):>32}  {'shared':>7}  {'stack':>6}  {'spills':>6}"]
    for name in sorted(by_name):
        figures = by_name[name].values()
        lines.append(f"{name:<{width}}  {' '.join(row(name, lambda k: k.registers)):>32}"
                     f"  {max(k.shared for k in figures):>7}  {max(k.stack for k in figures):>6}"
                     f"  {max(k.spill_stores + k.spill_loads for k in figures):>6}")
    return "\n".join(lines)


def check_no_spills(kernels, patterns):
    """What is wrong with the kernels that the patterns name."""
    problems = []
    for pattern in patterns:
        named = [k for k in kernels if re.search(pattern, k.name)]
        if not named:
            problems.append(f"--no-spills '{pattern}' fits no kernel")
        problems += [f"{k.name} on {k.arch} uses local memory: stack frame of {k.stack} bytes, "
                     f"{k.spill_stores} bytes of spill stores, {k.spill_loads} of spill loads"
                     for k in named if k.uses_local_memory()]
    return list(dict.fromkeys(problems))


def check_instructions(ptx, wanted):
    """What is wrong with the kernels of `ptx`, {file: {name: opcodes}}, that `wanted`, REGEX=OPCODE or REGEX=OPCODE|OPCODE, names."""
    problems = []
    for want in wanted:
        pattern, opcode = want.rsplit("=", 1)
        named = [(path, name, opcodes) for path, kernels in ptx.items() for name, opcodes in kernels.items() if re.search(pattern, name)]
        if not named:
            problems.append(f"--instruction '{pattern}' fits no kernel")
        problems += [f"{path}: {name} has no {opcode}" for path, name, opcodes in named if opcodes.isdisjoint(opcode.split("|"))]
    return problems


def main(argv):
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-spills", metavar="REGEX", action="append", default=[])
    parser.add_argument("--instruction", metavar="REGEX=OPCODE", action="append", default=[])
    parser.add_argument("files", metavar="FILE", nargs="+")
    options = parser.parse_args(argv)
    kernels, problems, ptx = [], [], {}
    for path in options.files:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".ptx"):
            problems += [f"{path}:{line}: {opcode}: not an operation of the numerics contract"
                         for line, opcode in forbidden_instructions(text)]
            found = opcodes_by_kernel(text)
            short = demangle(list(found)) if options.instruction else {}
            ptx[path] = {short.get(symbol, symbol): opcodes for symbol, opcodes in found.items()}
        else:
            kernels += parse_report(text)
    names = demangle([k.symbol for k in kernels])
    for kernel in kernels:
        kernel.name = names[kernel.symbol]
    if kernels:
        print(table(kernels))
    problems += check_no_spills(kernels, options.no_spills)
    problems += check_instructions(ptx, options.instruction)
    if not kernels and not options.no_spills and not any(path.endswith(".ptx") for path in options.files):
        problems.append("no kernel in these files")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
