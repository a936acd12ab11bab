#!/usr/bin/env -S python3 -B
"""Merges what the steps of run.sh left into result.json and prints the tables of times.

    report.py MANIFEST DIRECTORY

DIRECTORY holds steps.jsonl, gtest/*.json, benchmark/*.json, rows.jsonl (muse bench's and torch_bench.py's) and, if PyTorch was there,
torch.json. What a step that failed did not
write is missing from the result, never an error.
"""

import glob
import json
import os
import sys


def load(path):
    """The JSON of a file; None if it is missing or not whole."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def load_lines(path):
    """The JSON of each line of a file; a line that is not whole is left out."""
    rows = []
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    pass
    except OSError:
        pass
    return rows


def summarize_gtest(report):
    """{"passed", "failed", "skipped", "failures", "skips"} of googletest's JSON report."""
    summary = {"passed": 0, "failures": [], "skips": []}
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                summary["failures"].append({"test": name, "message": test["failures"][0]["failure"][:2000]})
            elif test.get("result") == "SKIPPED":
                summary["skips"].append(name)
            elif test.get("status") == "RUN":
                summary["passed"] += 1
    return summary | {"failed": len(summary["failures"]), "skipped": len(summary["skips"])}


def torch_times(torch):
    """{(layer, use, pass, tokens): {mode: row}} of torch_compare.py's cases."""
    times = {}
    for row in (torch or {}).get("cases", []):
        times.setdefault((row["layer"], row["use"], row["pass"], row["tokens"]), {})[row["mode"]] = row
    return times


_COLUMNS = (f"{'layer':<5} {'use':<7} {'pass':<8} {'tokens':>6} | {'fused us':>9} {'TB/s':>6} {'of copy':>7} {'launches':>8} |"
            f" {'unfused us':>10} {'x':>5} | {'eager us':>9} {'x':>5} | {'compile us':>10} {'x':>5}")


def _against(row, fused_us):
    """A competitor's time and its ratio to ours; a star where PyTorch ran without a CUDA graph."""
    if row is None or "skipped" in row:
        return "-", "-"
    star = "" if row.get("graph", True) else "*"
    return f"{row['median_us']:.1f}{star}", f"{row['median_us'] / fused_us:.2f}"


def table(benchmark, torch):
    """The lines of the table of times."""
    device = benchmark["device"]
    lines = [f"{device['name']}: copy {benchmark['copy']['bytes_per_second'] * 1e-12:.2f} TB/s", _COLUMNS]
    others = torch_times(torch)
    for row in benchmark["cases"]:
        key = (row["layer"], row["use"], row["pass"], row["tokens"])
        head = f"{key[0]:<5} {key[1]:<7} {key[2]:<8} {key[3]:>6} |"
        if "skipped" in row:
            lines.append(f"{head} skipped: {row['skipped']}")
            continue
        fused = row["fused"]["median_us"]
        eager, eager_x = _against(others.get(key, {}).get("eager"), fused)
        compiled, compiled_x = _against(others.get(key, {}).get("compile"), fused)
        lines.append(f"{head} {fused:>9.2f} {row['bytes_per_second'] * 1e-12:>6.2f} {row['share_of_copy']:>7.2f}"
                     f" {row['fused']['launches']:>8} | {row['unfused']['median_us']:>10.2f} {row['speedup']:>5.2f} |"
                     f" {eager:>9} {eager_x:>5} | {compiled:>10} {compiled_x:>5}")
    if any("*" in line for line in lines[2:]):
        lines.append("* without a CUDA graph: PyTorch could not capture it")
    return lines


_MUON_COLUMNS = (f"{'blocks':>6} {'d':>5} {'n':>6} {'gradients':<9} | {'us':>9} {'TFLOP/s':>7} {'TB/s':>6} {'of copy':>7} {'launches':>8}")


def muon_table(benchmark):
    """The lines of the Muon step's table."""
    lines = [f"{benchmark['device']['name']}: the Muon step, contract mode", _MUON_COLUMNS]
    for row in benchmark["cases"]:
        lines.append(f"{row['blocks']:>6} {row['d']:>5} {row['n']:>6} {row['gradients']:<9} | {row['median_us']:>9.2f}"
                     f" {row['flops_per_second'] * 1e-12:>7.2f} {row['bytes_per_second'] * 1e-12:>6.2f}"
                     f" {row['share_of_copy']:>7.2f} {row['launches']:>8}")
    return lines


_DECODER_COLUMNS = (f"{'kernel':<14} {'pass':<8} {'size':<26} | {'us':>10} {'TB/s':>6} {'of copy':>7} {'TFLOP/s':>8}"
                    f" {'launches':>8}")


def decoder_table(benchmark):
    """The lines of the table of a decoder's kernels."""
    lines = [f"{benchmark['device']['name']}: copy {benchmark['copy']['bytes_per_second'] * 1e-12:.2f} TB/s", _DECODER_COLUMNS]
    for row in benchmark["cases"]:
        head = f"{row['kernel']:<14} {row['pass']:<8} {row['size']:<26} |"
        if "skipped" in row:
            lines.append(f"{head} skipped: {row['skipped']}")
            continue
        flops = f"{row['flops_per_second'] * 1e-12:.2f}" if "flops_per_second" in row else "-"
        lines.append(f"{head} {row['median_us']:>10.2f} {row['bytes_per_second'] * 1e-12:>6.2f} {row['share_of_copy']:>7.2f}"
                     f" {flops:>8} {row['launches']:>8}")
    return lines


# --- Rows of the same work, Headwise's and PyTorch's ------------------------------------------------------------------


# By the middle of a row's name.
_CONTENDERS = {"fused": "Headwise", "unfused": "Headwise, unfused QKV", "tensor_core": "Headwise, tensor cores",
               "PyTorch": "PyTorch"}


def benchmark_rows(benchmarks):
    """Of the optimizers' steps, what Headwise's own benchmarks measured, in the form of muse bench."""
    rows = []

    def add(work, size, case):
        if "skipped" not in case:
            rows.append({"name": f"{work}/fused/time", "unit": "us", "value": case["median_us"], "size": size})
        if "tensor_core" in case:
            rows.append({"name": f"{work}/tensor_core/time", "unit": "us", "value": case["tensor_core"]["median_us"], "size": size})

    for benchmark in benchmarks.values():
        for case in benchmark.get("cases", []):
            if benchmark.get("benchmark") == "muon_step" and case["gradients"] == "fp32":
                add("muon_step", f"{case['blocks']}x{case['d']}x{case['n']}", case)
            if benchmark.get("benchmark") == "decoder_kernels" and case["kernel"] == "adamw":
                add("adamw", case["size"], case)
    return rows


def work_of(row):
    """(what, by whom) a row measured; None for what is no time and no rate of a unit or an optimizer."""
    parts = row.get("name", "").split("/")
    if len(parts) != 3 or parts[0] == "kernel" or parts[1] not in _CONTENDERS:
        return None
    figure = {"tokens/s": "rate", "us": "time"}.get(row.get("unit"))
    if parts[2] != figure:
        return None
    if "size" in row:
        what = f"{parts[0]} {row['size']}"
    else:
        what = f"{parts[0]} {row.get('preset')}, {row.get('layers')} layers, {row.get('tokens')} tokens"
        if row.get("rows", 1) != 1:
            what += f", {row['rows']} rows"
    return what, f"{_CONTENDERS[parts[1]]} {row.get('mode', '')}".strip()


def rows_table(rows):
    """Each work with its contenders, and how many times as fast as each Headwise is."""
    works = {}
    for row in rows:
        found = work_of(row)
        if found:
            works.setdefault(found[0], []).append((found[1], row))
    if not works:
        return []
    lines = [f"{'work':<50} {'by':<28} {'':>12} {'':<8} {'x':>6}"]
    for what, contenders in works.items():
        ours = next((row["value"] for by, row in contenders if by == "Headwise" and "value" in row), None)
        contenders.sort(key=lambda contender: not contender[0].startswith("Headwise"))
        if ours is None:
            lines.append(f"{what:<50} Headwise: not present")
        for by, row in contenders:
            if "value" not in row:
                lines.append(f"{what:<50} {by:<28} skipped: {row.get('skipped', 'no value')}")
                continue
            value = row["value"]
            faster = "" if ours is None or by == "Headwise" or not value or not ours else (
                f"{(ours / value if row['unit'] == 'tokens/s' else value / ours):.2f}")
            lines.append(f"{what:<50} {by:<28} {value:>12.1f} {row['unit']:<8} {faster:>6}".rstrip())
        if not any(by.startswith("PyTorch") for by, _ in contenders):
            lines.append(f"{what:<50} PyTorch: not present")
    return lines


def merge(manifest, directory):
    """The result, from what the steps left."""
    def by_name(folder):
        return {os.path.basename(path)[:-len(".json")]: load(path)
                for path in sorted(glob.glob(os.path.join(directory, folder, "*.json")))}

    return {
        "manifest": load(manifest),
        "steps": load_lines(os.path.join(directory, "steps.jsonl")),
        "tests": {name: summarize_gtest(report) for name, report in by_name("gtest").items() if report},
        "benchmarks": {name: report for name, report in by_name("benchmark").items() if report},
        "torch": load(os.path.join(directory, "torch.json")),
        "rows": load_lines(os.path.join(directory, "rows.jsonl")),
    }


def describe(result):
    """The lines that run.sh shows."""
    lines = []
    for name, tests in result["tests"].items():
        lines.append(f"{name}: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped")
        lines += [f"  FAILED  {failure['test']}" for failure in tests["failures"]]
        lines += [f"  skipped {skip}" for skip in tests["skips"]]
    for name, benchmark in result["benchmarks"].items():
        lines += ["", name]
        if benchmark.get("benchmark") == "muon_step":
            lines += muon_table(benchmark)
        elif benchmark.get("benchmark") == "decoder_kernels":
            lines += decoder_table(benchmark)
        else:
            lines += table(benchmark, result["torch"] if benchmark.get("benchmark") == "prepare_qkv" else None)
    checks = (result["torch"] or {}).get("checks", [])
    if checks:
        required = [check for check in checks if check["required"]]
        close = sum(check["close"] for check in required)
        lines += ["", f"PyTorch {result['torch']['torch']}, eager: {close} of {len(required)} tensors as close as they should be"]
        for check in checks:
            if not check["close"]:
                lines.append(f"  {'TOO FAR' if check['required'] else 'not required'}: {check['layer']} {check['mode']}"
                             f" {check['tensor']} against {check['rounding']}")
    side_by_side = rows_table(benchmark_rows(result["benchmarks"]) + result.get("rows", []))
    if side_by_side:
        lines += ["", "Headwise and PyTorch; x: Headwise's speed over the other's"] + side_by_side
    return lines


def main(manifest, directory):
    result = merge(manifest, directory)
    path = os.path.join(directory, "result.json")
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    os.replace(path + ".tmp", path)
    print("\n".join(describe(result)))


if __name__ == "__main__":
    main(*sys.argv[1:])
