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
         "bytes_per_second": 2.9e12, "share_of_copy": 0.7, "launches": 3,
         "tensor_core": {"median_us": 650.0}},
    ],
}
_DECODER = {
    "benchmark": "decoder_kernels",
    "device": {"name": "Made-up GPU"},
    "copy": {"bytes_per_second": 2.5e12},
    "cases": [
        {"kernel": "adamw", "pass": "step", "size": "160x64x8192", "median_us": 940.0, "bytes_per_second": 2.4e12,
         "share_of_copy": 0.96, "launches": 1},
        {"kernel": "attention", "pass": "forward", "size": "4096 tokens", "median_us": 5e4, "bytes_per_second": 1e10,
         "share_of_copy": 0.004, "flops_per_second": 6e12, "launches": 1},
        {"kernel": "cross_entropy", "pass": "both", "size": "8192 x 202048", "skipped": "out of time"},
    ],
}
_ROWS = [
    {"name": "train/fused/time", "unit": "ms", "value": 8.0, "tokens": 8192, "rows": 1, "preset": "muse_17m", "layers": 6},
    {"name": "train/fused/rate", "unit": "tokens/s", "value": 1e6, "tokens": 8192, "rows": 1, "preset": "muse_17m", "layers": 6},
    {"name": "train/unfused/rate", "unit": "tokens/s", "value": 8e5, "tokens": 8192, "rows": 1, "preset": "muse_17m", "layers": 6},
    {"name": "kernel/add/time", "unit": "ms", "value": 1.0, "tokens": 8192, "rows": 1, "preset": "muse_17m", "layers": 6},
    {"name": "decode/fused/rate", "unit": "tokens/s", "value": 9e3, "tokens": 4096, "rows": 16, "preset": "muse_spark", "layers": 4},
    {"name": "train/PyTorch/rate", "unit": "tokens/s", "value": 4e5, "tokens": 8192, "rows": 1, "preset": "muse_17m", "layers": 6,
     "mode": "eager, AdamW"},
    {"name": "train/PyTorch/rate", "unit": "tokens/s", "skipped": "out of memory", "tokens": 8192, "rows": 1,
     "preset": "muse_17m", "layers": 6, "mode": "compile, AdamW"},
    {"name": "muon_step/PyTorch/time", "unit": "us", "value": 8125.0, "size": "160x64x8192", "mode": "batched"},
    {"name": "prefill/PyTorch/rate", "unit": "tokens/s", "value": 5e4, "tokens": 4096, "rows": 1, "preset": "muse_spark",
     "layers": 4, "mode": "eager"},
]
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

    def test_a_decoders_kernels_have_a_table_of_their_own(self):
        lines = report.describe({"tests": {}, "torch": None, "benchmarks": {"decoder": _DECODER}})
        self.assertEqual(lines[:3], ["", "decoder", "Made-up GPU: copy 2.50 TB/s"])
        self.assertEqual(lines[4].split(), "adamw step 160x64x8192 | 940.00 2.40 0.96 - 1".split())
        self.assertEqual(lines[5].split(), "attention forward 4096 tokens | 50000.00 0.01 0.00 6.00 1".split())
        self.assertIn("| skipped: out of time", lines[6])
        for line in lines[4:7]:
            self.assertEqual(line.index("|"), lines[3].index("|"))

    def test_rows_of_the_same_work_stand_side_by_side(self):
        lines = report.rows_table(report.benchmark_rows({"muon": _MUON, "decoder": _DECODER}) + _ROWS)
        table = [line.split() for line in lines[1:]]
        train = "train muse_17m, 6 layers, 8192 tokens"
        for expected in ("muon_step 160x64x8192 Headwise 812.5 us", "muon_step 160x64x8192 Headwise, tensor cores 650.0 us 0.80", "muon_step 160x64x8192 PyTorch batched 8125.0 us 10.00",
                         f"{train} Headwise 1000000.0 tokens/s", f"{train} Headwise, unfused QKV 800000.0 tokens/s 1.25",
                         f"{train} PyTorch eager, AdamW 400000.0 tokens/s 2.50",
                         f"{train} PyTorch compile, AdamW skipped: out of memory"):
            self.assertIn(expected.split(), table)
        self.assertEqual(sum("kernel" in line or " ms" in line for line in lines), 0)

    def test_who_has_no_row_is_not_present(self):
        lines = report.rows_table(report.benchmark_rows({"decoder": _DECODER}) + _ROWS)
        missing = [" ".join(line.split()) for line in lines if "not present" in line]
        self.assertEqual(missing, ["adamw 160x64x8192 PyTorch: not present", "decode muse_spark, 4 layers, 4096 tokens, 16 rows"
                                   " PyTorch: not present", "muon_step 160x64x8192 Headwise: not present",
                                   "prefill muse_spark, 4 layers, 4096 tokens Headwise: not present"])
        self.assertEqual(report.rows_table([]), [])

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
                     json.dumps(_BENCHMARK), "rows.jsonl": "\n".join(map(json.dumps, _ROWS)) + '\n{"name": '}
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
        self.assertEqual(result["rows"], _ROWS)


if __name__ == "__main__":
    unittest.main()
