"""Each rule of the lints seen to go red on the smallest text that breaks it, and to accept the text that does not."""

import os
import tempfile
import unittest

import arrows_lint
import build_lint
import cuda_lint

_TAGS = {"tsan"}
_GOOD = """# A package.
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")

package(default_visibility = ["//visibility:private"])

cc_library(name = "heads", srcs = ["heads.cc"], hdrs = ["heads.h"])

cc_test(name = "heads_test", size = "small", srcs = ["heads_test.cc"], tags = ["tsan"], deps = [":heads"])
"""


class BuildLintTest(unittest.TestCase):

    def assert_red(self, text, message):
        problems = build_lint.lint_build(text, _TAGS)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(message, problems[0][1])

    def test_a_good_file_passes(self):
        self.assertEqual(build_lint.lint_build(_GOOD, _TAGS), [])

    def test_a_file_of_comments_passes(self):
        self.assertEqual(build_lint.lint_build("# Only .bzl files here.\n", _TAGS), [])

    def test_rules_come_from_rules_cc(self):
        self.assert_red(_GOOD.replace('load("@rules_cc//cc:cc_test.bzl", "cc_test")\n', ""), "cc_test.bzl")
        self.assert_red(_GOOD.replace("@rules_cc//cc:cc_library.bzl", "@rules_cc//cc:defs.bzl"), "cc_library.bzl")

    def test_visibility_is_declared(self):
        self.assert_red(_GOOD.replace("package(", "licenses("), "default_visibility")

    def test_tests_have_a_size(self):
        self.assert_red(_GOOD.replace('size = "small", ', ""), "without a size")

    def test_tags_are_known(self):
        self.assert_red(_GOOD.replace("tsan", "tzan"), "unknown tag 'tzan'")

    def test_no_source_is_forgotten(self):
        sources = ["heads.h", "heads.cc", "heads_test.cc"]
        self.assertEqual(build_lint.lint_forgotten(_GOOD, sources), [])
        self.assertEqual(build_lint.lint_forgotten(_GOOD, sources + ["more_test.cc"]),
                         [(1, "no target names more_test.cc")])

    def test_a_source_belongs_to_the_nearest_package(self):
        files = ["BUILD", "model/BUILD", "model/main.cc", "model/ops/norm.cc", "docs/a.cc"]
        self.assertEqual(build_lint.sources_by_package(files),
                         {"model": {"main.cc", "ops/norm.cc"}, "": {"docs/a.cc"}})
        self.assertEqual(build_lint.sources_by_package(["docs/a.cc"]), {None: {"docs/a.cc"}})


class ArrowsLintTest(unittest.TestCase):

    def test_arrows_by_include(self):
        allowed = [
            ("kernels/gemm/gemm.cc", "core/tensor/tensor.h"),
            ("kernels/gemm/gemm.cc", "kernels/common/simd.h"),
            ("kernels/muon_step/muon_step.h", "kernels/newton_schulz/newton_schulz.h"),
            ("kernels/launchers/launchers.h", "kernels/adamw/cuda.h"),
            ("model/decoder.h", "optim/muon.h"),
            ("tests/golden_test.cc", "tools/plot.h"),
            ("core/base/check.h", "absl/status/status.h"),
        ]
        for path, target in allowed:
            self.assertIsNone(arrows_lint.check_arrow(path, target), (path, target))
        forbidden = [
            ("core/tensor/tensor.cc", "kernels/common/simd.h"),
            ("kernels/gemm/gemm.cc", "optim/muon.h"),
            ("optim/muon.cc", "model/decoder.h"),
            ("model/decoder.cc", "tools/plot.h"),
            ("tools/plot.cc", "tests/golden.h"),
            ("kernels/newton_schulz/cpu.cc", "kernels/muon_step/muon_step.h"),
            ("kernels/adamw/adamw.cc", "kernels/launchers/launchers.h"),
            ("kernels/common/simd.h", "kernels/gemm/gemm.h"),
        ]
        for path, target in forbidden:
            problems = arrows_lint.lint_cpp(path.replace(".h", ".cc"), f'#include "{target}"\n')
            self.assertEqual([line for line, _ in problems], [1], (path, target))

    def test_arrows_by_label(self):
        text = '''package(default_visibility = ["//model:__subpackages__"])
cc_library(name = "a", visibility = ["//model:__pkg__"], deps = ["//core/base:check"])
cc_library(name = "b", deps = select({"//conditions:default": ["//optim:muon"]}))
'''
        self.assertEqual([line for line, _ in arrows_lint.lint_build("core/heads/BUILD", text)], [3])
        self.assertEqual(arrows_lint.lint_build("model/BUILD", text), [])

    def test_a_benchmark_may_compare_itself_with_another_family(self):
        include = '#include "kernels/gemm/gemm.h"\n'
        self.assertEqual(arrows_lint.lint_cpp("kernels/attention/benchmark.cc", include), [])
        self.assertEqual(len(arrows_lint.lint_cpp("kernels/attention/attention.cc", include)), 1)
        text = 'cc_binary(name = "{}", deps = ["//kernels/gemm"])\n'
        self.assertEqual(arrows_lint.lint_build("kernels/attention/BUILD", text.format("benchmark")), [])
        self.assertEqual(len(arrows_lint.lint_build("kernels/attention/BUILD", text.format("cpu"))), 1)

    def test_cuda_does_not_leak(self):
        text = ("#ifndef HEADWISE_CORE_A_H_\n#define HEADWISE_CORE_A_H_\n"
                "#include <cuda_runtime.h>\n#endif  // HEADWISE_CORE_A_H_\n")
        self.assertEqual([line for line, _ in arrows_lint.lint_cpp("core/a.h", text)], [3])
        self.assertEqual(arrows_lint.lint_cpp("core/a.cc", text), [])

    def test_the_include_guard_is_the_path(self):
        text = "#ifndef HEADWISE_CORE_A_H_\n#define HEADWISE_CORE_A_H_\n#endif  // HEADWISE_CORE_A_H_\n"
        self.assertEqual(arrows_lint.lint_cpp("core/a.h", text), [])
        self.assertEqual(len(arrows_lint.lint_cpp("core/b.h", text)), 1)
        self.assertEqual(len(arrows_lint.lint_cpp("core/a.h", "#pragma once\n")), 1)


class CudaLintTest(unittest.TestCase):
    """On a tree with a kernel, headers of its own, and an emulation that includes different things for each compiler."""

    _TREE = {
        "kernels/emulation/cuda_kernel.h": """#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define HW_ONLY_NVCC 1
#include "kernels/emulation/nvcc.cuh"
#else
#include "core/bf16.h"
#endif
""",
        "kernels/emulation/nvcc.cuh": "#pragma once\n#include <cuda_bf16.h>\n",
        "core/bf16.h": "#pragma once\nint bf16;\n",
        "core/heads.h": "#pragma once\nint heads;\n",
        "kernels/norm/norm.cuh": "#pragma once\n#include \"core/heads.h\"\nint norm;\n",
        "kernels/norm/norm.cu": """#include <cmath>
#include "kernels/emulation/cuda_kernel.h"
#include "core/bf16.h"
#include "kernels/norm/norm.cuh"
#define HW_WIDTH 4
#if HW_WIDTH == 4
namespace headwise::HW_CUDA_NAMESPACE { int width; }
#endif
""",
    }

    def lint(self, changes):
        """The problems of a tree with some texts of _TREE changed: {path: (old, new)}."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in self._TREE.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    old, new = changes.get(path, ("", ""))
                    self.assertIn(old, text)
                    file.write(text.replace(old, new, 1) if old else text)
            return cuda_lint.lint(list(self._TREE), root)

    def assert_red(self, path, line, message, changes):
        problems = self.lint(changes)
        self.assertEqual([problem[:2] for problem in problems], [(path, line)], problems)
        self.assertIn(message, problems[0][2])

    def test_one_text_passes(self):
        self.assertEqual(self.lint({}), [])

    def test_a_macro_of_one_compiler(self):
        self.assert_red("kernels/norm/norm.cu", 7, "nvcc (host) None",
                        {"kernels/norm/norm.cu": ("#if HW_WIDTH == 4", "#ifndef HW_ONLY_NVCC")})

    def test_a_macro_of_one_compiler_in_a_header(self):
        self.assert_red("kernels/norm/norm.cuh", 4, "g++ sees None, nvcc (host) 'int norm;'",
                        {"kernels/norm/norm.cuh": ("int norm;", "#ifdef HW_ONLY_NVCC\nint norm;\n#endif")})
        self.assert_red("core/heads.h", 3, "g++ sees 'int heads;'",
                        {"core/heads.h": ("int heads;", "#if !defined(__CUDA_ARCH__)\nint heads;\n#endif")})

    def test_an_include_of_one_compiler(self):
        self.assert_red("core/heads.h", 2, "nvcc (host) None",
                        {"kernels/norm/norm.cuh": ('#include "core/heads.h"\n',
                                                   '#ifndef HW_ONLY_NVCC\n#include "core/heads.h"\n#endif\n')})

    def test_names_of_compilers(self):
        for name in ["__CUDACC__", "__CUDA_ARCH__", "__NVCC__", "HW_EMULATION_TSAN", "HW_HAVE_CUDA"]:
            self.assert_red("kernels/norm/norm.cu", 9, name + ": kernels do not know",
                            {"kernels/norm/norm.cu": ("#endif", "#endif\n// " + name)})
        self.assert_red("kernels/norm/norm.cu", 6, "a conditional on HW_CUDA_NAMESPACE",
                        {"kernels/norm/norm.cu": ("#if HW_WIDTH == 4", "#if HW_WIDTH == 4 || HW_CUDA_NAMESPACE")})

    def test_library_functions(self):
        for text in ["y = std::exp(x);", "y = tanhf(x);", "y = 1.0f / sqrtf(x);", "y = fmaxf(a, b);", "y = ::log2(x);"]:
            self.assertEqual(len(cuda_lint.lint_text(text)), 1, text)
        for text in ["y = __expf_rn(x);", "y = __dsqrt_rn(x);", "// exp(x)", "y = Exp(x);", "y = table.exp(x);", "pow2(x)"]:
            self.assertEqual(cuda_lint.lint_text(text), [], text)

    def test_cuda_headers_come_from_the_emulation(self):
        problems = self.lint({"kernels/norm/norm.cu": ("#include <cmath>", "#include <cuda_runtime.h>")})
        self.assertEqual([problem[:2] for problem in problems], [("kernels/norm/norm.cu", 1)], problems)
        self.assertIn("cuda_kernel.h", problems[0][2])

    def test_what_does_not_preprocess(self):
        self.assert_red("kernels/norm/norm.cu", 1, "no_such.h",
                        {"kernels/norm/norm.cu": ("#include <cmath>", "#include <no_such.h>")})


if __name__ == "__main__":
    unittest.main()
