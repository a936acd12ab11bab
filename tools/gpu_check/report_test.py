#!/usr/bin/env -S python3 -B
"""Tests of report.py. The figures in here are made up."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report  # pylint: disable=wrong-import-position

_BENCHMARK = {
    "benchmark": "prepare_qkv",
    "device": {"name": "Made-up GPU"},
    "copy": {"bytes_per_second": 2.5e12},
    "cases": [
        {"layer": "rope", "use": "train", "pass": "forward", "tokens": 4096, "bytes_per_second": 2.0e12, "share_of_copy": 0.8,
         "speedup": 3.0, "fused": {"median_us": 84.0, "launches": 1}, "unfused": {"median_us": 252.0, "launches": 5}},
        {"layer": "nope", "use": "decode", "pass": "forward", "tokens": 1, "bytes_per_second": 1e10, "share_of_copy": 0.004,
         "speedup": 2.5, "fused": {"median_us": 4.0, "launches": 1}, "unfused": {"median_us": 10.0, "launches": 3}},
        {"layer": "nope", "use": "train", "pass": "forward", "tokens": 16384, "skipped": "needs 2700 MiB free"},
    ],
}
_MUON = {
    "benchmark": "muon_step",
    "device": {"name": "Made-up GPU"},
    "cases": [
        {"blocks": 160, "d": 64, "n": 8192, "gradients": "fp32", "median_us": 812.5, "flops_per_second": 2.8e13,
         "bytes_per_second": 2.9e12, "share_of_copy": 0.7, "launches": 3},
    ],
}
_TORCH = {
    "torch": "9.9",
    "checks": [
        {"layer": "rope", "rounding": "after_weight", "mode": "eager", "tensor": "q", "required": True, "close": True},
        {"layer": "rope", "rounding": "after_weight", "mode": "eager", "tensor": "k", "required": True, "close": False},
        {"layer": "rope", "rounding": "only_at_end", "mode": "compile", "tensor": "q", "required": False, "close": False},
    ],
    "cases": [
        {"layer": "rope", "use": "train", "pass": "forward", "tokens": 4096, "mode": "eager", "median_us": 840.0, "graph": True},
        {"layer": "rope", "use": "train", "pass": "forward", "tokens": 4096, "mode": "compile", "skipped": "out of time"},
        {"layer": "nope", "use": "decode", "pass": "forward", "tokens": 1, "mode": "compile", "median_us": 6.0, "graph": False},
    ],
}
_GTEST = {"testsuites": [{"name": "GpuBits/0", "testsuite": [
    {"name": "Fine", "status": "RUN", "result": "COMPLETED"},
    {"name": "Wrong", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "q: 3 of 9 differ"}]},
    {"name": "Large", "status": "RUN", "result": "SKIPPED"},
    {"name": "Filtered", "status": "NOTRUN", "result": "SUPPRESSED"},
]}]}


class ReportTest(unittest.TestCase):

    def test_gtest_results_are_counted_by_kind(self):
        summary = report.summarize_gtest(_GTEST)
        self.assertEqual((summary["passed"], summary["failed"], summary["skipped"]), (1, 1, 1))
        self.assertEqual(summary["failures"], [{"test": "GpuBits/0.Wrong", "message": "q: 3 of 9 differ"}])
        self.assertEqual(summary["skips"], ["GpuBits/0.Large"])

    def test_the_table_has_every_contender_and_its_ratio_to_the_fused_kernel(self):
        lines = report.table(_BENCHMARK, _TORCH)
        self.assertEqual(lines[0], "Made-up GPU: copy 2.50 TB/s")
        self.assertEqual(lines[2].split(), "rope train forward 4096 | 84.00 2.00 0.80 1 | 252.00 3.00 | 840.0 10.00 | - -".split())
        self.assertEqual(lines[3].split(), "nope decode forward 1 | 4.00 0.01 0.00 1 | 10.00 2.50 | - - | 6.0* 1.50".split())
        self.assertIn("skipped: needs 2700 MiB free", lines[4])
        self.assertIn("without a CUDA graph", lines[5])
        for line in lines[2:4]:
            self.assertEqual([i for i, c in enumerate(line) if c == "|"], [i for i, c in enumerate(lines[1]) if c == "|"])

    def test_the_table_does_without_pytorch(self):
        self.assertEqual(len(report.table(_BENCHMARK, None)), 5)

    def test_the_muon_step_has_a_table_of_its_own(self):
        lines = report.describe({"tests": {}, "torch": None, "benchmarks": {"muon": _MUON}})
        self.assertEqual(lines[:3], ["", "muon", "Made-up GPU: the Muon step, contract mode"])
        self.assertEqual(lines[4].split(), "160 64 8192 fp32 | 812.50 28.00 2.90 0.70 3".split())
        self.assertEqual(lines[4].index("|"), lines[3].index("|"))

    def test_what_is_wrong_is_named(self):
        text = "\n".join(report.describe({"tests": {"gpu_test": report.summarize_gtest(_GTEST)}, "torch": _TORCH,
                                          "benchmarks": {"gpu_benchmark": _BENCHMARK}}))
        self.assertIn("gpu_test: 1 passed, 1 failed, 1 skipped\n  FAILED  GpuBits/0.Wrong\n  skipped GpuBits/0.Large", text)
        self.assertIn("PyTorch 9.9, eager: 1 of 2 tensors as close as they should be\n  TOO FAR: rope eager k", text)
        self.assertIn("not required: rope compile q against only_at_end", text)

    def test_what_steps_left_is_merged_and_what_they_did_not_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("gtest", "benchmark"):
                os.mkdir(os.path.join(folder, name))
            files = {"manifest.json": '{"commit": "abc"}', "steps.jsonl": '{"step": "a"}\n{"step": "b"}\n',
                     "gtest/gpu_test.json": json.dumps(_GTEST), "gtest/broken.json": "{", "benchmark/gpu_benchmark.json":
                     json.dumps(_BENCHMARK)}
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            report.main(os.path.join(folder, "manifest.json"), folder)
            with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(result["manifest"], {"commit": "abc"})
        self.assertEqual([step["step"] for step in result["steps"]], ["a", "b"])
        self.assertEqual(list(result["tests"]), ["gpu_test"])
        self.assertEqual(result["benchmarks"]["gpu_benchmark"], _BENCHMARK)
        self.assertIsNone(result["torch"])


if __name__ == "__main__":
    unittest.main()
