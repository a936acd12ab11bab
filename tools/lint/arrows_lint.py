"""Lints what depends on what, by #include in C++ and by label in BUILD files.

    core <- kernels <- optim <- model <- tools, tests

* An arrow never runs back: core includes nothing of kernels, kernels nothing of optim, and so on.
* A kernel family includes no other family; what families share lies in kernels/common. muon_step may build on newton_schulz, moe on
  gemm, and a benchmark may measure itself against another family. kernels/launchers is no family: it lists what all of them have.
* CUDA never leaks: a .h file includes no CUDA header (a .cuh may).
* A header's include guard is its path: HEADWISE_CORE_DTYPE_BF16_H_.

    tools/lint/arrows_lint.py FILE...       FILEs from the repository's root; prints PATH:LINE: WHAT and exits 1
"""

import ast
import os
import re
import sys

_RANK = {"core": 0, "kernels": 1, "optim": 2, "model": 3, "tools": 4, "tests": 5}
_SHARED_FAMILIES = {"common", "emulation"}
_MAY_BUILD_ON = {("muon_step", "newton_schulz"), ("moe", "gemm")}
_OVER_ALL_FAMILIES = {"launchers"}
_CPP = (".h", ".cc", ".cu", ".cuh")

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
_LABEL = re.compile(r"^//([^:]*)")
_CUDA = re.compile(r"^(cuda|cublas|nccl|cub/|thrust/|cooperative_groups|device_launch)")


def _is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def check_arrow(source, target):
    """Why the file `source` may not depend on the path `target`, or None. Paths from the repository's root."""
    from_parts, to_parts = source.split("/"), target.split("/")
    if from_parts[0] not in _RANK or to_parts[0] not in _RANK:
        return None
    if _RANK[to_parts[0]] > _RANK[from_parts[0]]:
        return f"{from_parts[0]} may not depend on {to_parts[0]}, here on {target}"
    if from_parts[0] == to_parts[0] == "kernels":
        own, other = from_parts[1], to_parts[1]
        allowed = own == other or own in _OVER_ALL_FAMILIES or other in _SHARED_FAMILIES or (own, other) in _MAY_BUILD_ON
        if not allowed and not source.endswith("benchmark.cc"):
            return f"kernel family {own} may not depend on family {other}; move what both need to kernels/common"
    return None


def lint_cpp(path, text):
    """Returns [(line, message)] for one C++ or CUDA file."""
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _INCLUDE.match(line)
        if not match:
            continue
        problem = check_arrow(path, match.group(1))
        if problem:
            problems.append((number, problem))
        if path.endswith(".h") and _CUDA.match(match.group(1)):
            problems.append((number, f"a .h file may not include <{match.group(1)}>: CPU-only users include it"))
    if path.endswith((".h", ".cuh")):
        guard = "HEADWISE_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
        if f"#ifndef {guard}\n#define {guard}\n" not in text:
            problems.append((1, f"the include guard is not {guard}"))
    return problems


def lint_build(path, text):
    """Returns [(line, message)] for one BUILD file. load() is exempt (macros are not linked), and so is visibility."""
    problems = []
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") in ("load", "package"):
            continue
        # A benchmark's target has the rights of its source.
        name = next((k.value.value for k in call.keywords if k.arg == "name" and _is_string(k.value)), "")
        source = os.path.join(os.path.dirname(path), name + ".cc")
        for keyword in call.keywords:
            if keyword.arg == "visibility":
                continue
            for node in ast.walk(keyword.value):
                label = _LABEL.match(node.value) if _is_string(node) else None
                problem = label and check_arrow(source, label.group(1))
                if problem:
                    problems.append((node.lineno, problem))
    return problems


def main(files):
    """Returns the exit status."""
    status = 0
    for path in files:
        is_build = os.path.basename(path) == "BUILD"
        if not is_build and not path.endswith(_CPP):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for line, message in lint_build(path, text) if is_build else lint_cpp(path, text):
            print(f"{path}:{line}: {message}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
