"""Lints .cu and .cuh files of kernels/: what nvcc compiles is what the emulation proves.

* The text that is left when conditionals are resolved is the same, line for line, for nvcc's host pass, its device pass and
  g++, in the file and in every header that it includes. What kernels/emulation includes is exempt: that is where the
  compilers part. Macros are not expanded (g++ -E -fdirectives-only), and no CUDA toolkit is needed.
* No file tells the compilers apart: __CUDACC__, __CUDA_ARCH__ and the like do not occur in it.
* Only arithmetic with the same bits everywhere: no exp, tanh, sqrt and their like, whose results are the library's (docs/numerics.md).
* CUDA's headers come from kernels/emulation/cuda_kernel.h alone.

    tools/lint/cuda_lint.py FILE...         FILEs from the repository's root; prints PATH:LINE: WHAT and exits 1
"""

import os
import re
import subprocess
import sys
import tempfile

# Where the compilers part.
_EXEMPT = {"kernels/emulation/nvcc.cuh"}

_CUDA_HEADERS = ("cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h")
_COMPILERS = {
    "g++": ["-DHW_CUDA_NAMESPACE=cuda_emulated"],
    "nvcc (host)": ["-DHW_CUDA_NAMESPACE=cuda", "-D__CUDACC__", "-D__NVCC__"],
    "nvcc (device)": ["-DHW_CUDA_NAMESPACE=cuda", "-D__CUDACC__", "-D__NVCC__", "-D__CUDA_ARCH__=900"],
}

_TELLS_APART = re.compile(r"\b(__CUDACC\w*|__NVCC__|__CUDA_ARCH\w*|__CUDABE__|HW_HAVE_CUDA|HW_EMULAT\w*)\b")
_CONDITIONAL = re.compile(r"^\s*#\s*(?:el)?if.*\bHW_CUDA_NAMESPACE\b")
_CUDA_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:cuda|cub/|thrust/|cooperative_groups|device_)')
# Functions of the C and C++ libraries whose bits, or NaN, are not the same on a GPU.
_LIBRARY = re.compile(r"(?<![\w.:>])(?:std::|::)?((?:exp2?|expm1|log(?:2|10|1p)?|pow|sin|cos|tan|sinh|cosh|tanh|asin|acos|atan2?|erfc?|cbrt|hypot|"
                      r"r?sqrt|fma|fmod|fmax|fmin)f?)\s*\(")
# Indented where the #include was.
_MARKER = re.compile(r'^\s*# (\d+) "([^"]*)"((?: \d)*)$')


def _is_emulation(path):
    """Of the emulation itself; its tests' kernels are kernels like others."""
    return path.startswith("kernels/emulation/") and not path.startswith("kernels/emulation/testing/")


def lint_text(text):
    """[(line, message)] for what one file says by itself."""
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _TELLS_APART.search(line)
        if match:
            problems.append((number, f"{match.group(1)}: kernels do not know who compiles them"))
        match = _LIBRARY.search(line.split("//")[0])
        if match:
            problems.append((number, f"{match.group(1)}: not the same bits on a GPU; docs/numerics.md lists what there is"))
        if _CONDITIONAL.match(line):
            problems.append((number, "a conditional on HW_CUDA_NAMESPACE: kernels do not know who compiles them"))
        if _CUDA_INCLUDE.match(line):
            problems.append((number, 'include "kernels/emulation/cuda_kernel.h" instead of CUDA\'s headers'))
    return problems


def parse(output):
    """({file: {line: text}}, files) of what the preprocessor printed: the text of the repository's files outside
    kernels/emulation, and those of them that were not included by way of it."""
    texts, direct = {}, set()
    stack, line = [], 0
    for text in output.splitlines():
        marker = _MARKER.match(text)
        if marker:
            line, name, flags = int(marker.group(1)), os.path.normpath(marker.group(2)), marker.group(3).split()
            if "2" in flags and name in stack:
                # Back in a file. g++ 12 leaves out the way into some headers: there may be nothing to leave.
                while stack[-1] != name:
                    stack.pop()
            elif "1" in flags or not stack:
                stack.append(name)
            else:
                stack[-1] = name
            continue
        name = stack[-1] if stack else ""
        ours = name and not name.startswith(("/", "<", "..")) and not _is_emulation(name)
        if ours and text.strip():
            texts.setdefault(name, {})[line] = text.rstrip()
            if not any(_is_emulation(file) for file in stack):
                direct.add(name)
        line += 1
    return texts, direct


def preprocess(path, flags, root, stubs):
    """What g++ prints for the file; raises subprocess.CalledProcessError with its messages."""
    command = ["g++", "-std=c++20", "-E", "-fdirectives-only", "-x", "c++", "-I.", f"-isystem{stubs}", *flags, path]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def compare(one, other):
    """[(file, line, texts)] where two results of parse() differ."""
    problems = []
    for file in sorted(one[0].keys() | other[0].keys()):
        if file not in one[1] and file not in other[1]:
            continue
        a, b = one[0].get(file, {}), other[0].get(file, {})
        lines = [number for number in sorted(a.keys() | b.keys()) if a.get(number) != b.get(number)]
        if lines:
            problems.append((file, lines[0], (a.get(lines[0]), b.get(lines[0]))))
    return problems


def lint_compilers(path, root, stubs):
    """[(file, line, message)] where compilers see different text in the file or in what it includes."""
    try:
        seen = {name: parse(preprocess(path, flags, root, stubs)) for name, flags in _COMPILERS.items()}
    except subprocess.CalledProcessError as error:
        return [(path, 1, "does not preprocess: " + error.stderr.strip())]
    problems = {}
    for name in list(_COMPILERS)[1:]:
        for file, line, (ours, theirs) in compare(seen["g++"], seen[name]):
            message = f"g++ sees {ours!r}, {name} {theirs!r}"
            problems.setdefault((file, line), message)
    return [(file, line, message) for (file, line), message in sorted(problems.items())]


def lint(paths, root="."):
    """[(file, line, message)] for the .cu and .cuh files of kernels/ among the paths, each problem once."""
    problems = []
    with tempfile.TemporaryDirectory() as stubs:
        for header in _CUDA_HEADERS:
            with open(os.path.join(stubs, header), "w", encoding="utf-8"):
                pass
        for path in paths:
            if not path.startswith("kernels/") or not path.endswith((".cu", ".cuh")) or path in _EXEMPT:
                continue
            with open(os.path.join(root, path), encoding="utf-8") as file:
                problems += [(path, line, message) for line, message in lint_text(file.read())]
            problems += lint_compilers(path, root, stubs)
    return sorted(set(problems))


def main(paths):
    """Returns the exit status."""
    problems = lint(paths)
    for file, line, message in problems:
        print(f"{file}:{line}: {message}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
