"""emulated_tests: a family's tests of its emulated kernels.

    emulated_tests(
        srcs = ["emulated_test.cc"],
        deps = [":rms_norm", "//core/dtype"],
    )

makes :emulated_test, and of the same sources :emulated_sanitized_test, which runs what has ForSanitizers in
its name: under --config=tsan CUDA threads are watched for races.
"""

load("@rules_cc//cc:cc_test.bzl", "cc_test")

# What every such test is written with, besides the family's :cuda_emulated and :cuda_launch.
_DEPS = [
    "//kernels/common:thread_pool",
    "//kernels/common/testing:emulated",
    "//kernels/common/testing:kernel_testing",
    "//kernels/emulation",
    "@com_google_absl//absl/status",
    "@com_google_absl//absl/types:span",
    "@com_google_googletest//:gtest_main",
]

def emulated_tests(srcs, deps, size = "small"):
    """See the top of the file.

    Args:
      srcs: of both tests.
      deps: besides those of every such test.
      size: of the whole test.
    """
    deps = [":cuda_emulated", ":cuda_launch"] + deps + [Label(dep) for dep in _DEPS]
    cc_test(
        name = "emulated_test",
        size = size,
        srcs = srcs,
        tags = ["bitwise"],
        deps = deps,
    )
    cc_test(
        name = "emulated_sanitized_test",
        size = "small",
        srcs = srcs,
        args = ["--gtest_filter=*ForSanitizers*"],
        tags = [
            "sanitize",
            "tsan",
        ],
        deps = deps,
    )
