"""Lints BUILD files: what Bazel accepts and this repository does not.

* cc_library, cc_binary and cc_test are loaded from @rules_cc, so that Bazels without built-in C++ rules can read the file.
* Every package declares its default visibility.
* Every test has a size; every tag is one of tags.txt.
* Every C++ source of a package is named in its BUILD file, so that no test is forgotten.

BUILD files are Starlark, whose syntax is a part of Python's: Python's own parser reads them.

    tools/lint/build_lint.py FILE...        FILEs from the repository's root; prints PATH:LINE: WHAT and exits 1
"""

import ast
import os
import sys

_CC_RULES = ("cc_binary", "cc_library", "cc_test")
_SOURCES = (".cc", ".h", ".cu", ".cuh", ".proto")


def load_tags(path):
    """The first word of each line of tags.txt that is not a comment."""
    with open(path, encoding="utf-8") as lines:
        return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def _strings(node):
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _calls(tree):
    """(name, call) for every call of a plain function."""
    return [(n.func.id, n) for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


def _keyword(call, name):
    return next((k.value for k in call.keywords if k.arg == name), None)


def lint_build(text, tags, is_package=True):
    """Returns [(line, message)] for one BUILD file."""
    problems = []
    calls = _calls(ast.parse(text))
    loaded = {}
    for name, call in calls:
        if name == "load":
            label, *symbols = _strings(call)
            loaded.update({symbol: label for symbol in symbols})

    for name, call in calls:
        expected = f"@rules_cc//cc:{name}.bzl"
        if name in _CC_RULES and loaded.get(name) != expected:
            problems.append((call.lineno, f'load("{expected}", "{name}")'))
        if name.endswith("_test") and _keyword(call, "size") is None:
            problems.append((call.lineno, f"{name} without a size"))
        tag_list = _keyword(call, "tags")
        for tag in _strings(tag_list) if tag_list else []:
            if tag not in tags:
                problems.append((tag_list.lineno, f"unknown tag '{tag}'; tools/lint/tags.txt has the known ones"))

    packages = [call for name, call in calls if name == "package"]
    if calls and is_package and not any(_keyword(call, "default_visibility") for call in packages):
        problems.append((1, 'no package(default_visibility = ["//visibility:private"])'))
    return problems


def lint_forgotten(text, sources):
    """Returns [(line, message)] for those of the folder's sources that the BUILD file does not name."""
    tree = ast.parse(text)
    named = set(_strings(tree))
    if any(name == "glob" for name, _ in _calls(tree)):
        return []
    return [(1, f"no target names {source}") for source in sorted(sources) if source not in named]


def sources_by_package(files):
    """{folder of a BUILD file: {its sources, relative to it}}; "" for the root, None for sources outside any package."""
    packages = {os.path.dirname(path) for path in files if os.path.basename(path) == "BUILD"}
    sources = {}
    for path in files:
        if not path.endswith(_SOURCES):
            continue
        folder = os.path.dirname(path)
        while folder and folder not in packages:
            folder = os.path.dirname(folder)
        package = folder if folder in packages else None
        sources.setdefault(package, set()).add(os.path.relpath(path, folder or "."))
    return sources


def main(files):
    """Lints the BUILD files among the files; the others are the sources to look for. Returns the exit status."""
    tags = load_tags(os.path.join(os.path.dirname(__file__), "tags.txt"))
    sources = sources_by_package(files)
    status = 0
    for path in files:
        name = os.path.basename(path)
        if name != "BUILD" and not name.endswith(".BUILD"):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        problems = lint_build(text, tags, is_package=name == "BUILD")
        if name == "BUILD":
            problems += lint_forgotten(text, sources.get(os.path.dirname(path), ()))
        for line, message in problems:
            print(f"{path}:{line}: {message}")
            status = 1
    for source in sorted(sources.get(None, ())):
        print(f"{source}: in no package; add a BUILD file")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
