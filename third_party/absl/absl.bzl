"""debian_absl: Debian's libabsl-dev under the labels that Abseil's own workspace uses.

Every label is an alias of one target, because Debian links Abseil as shared libraries: a program that uses
`@com_google_absl//absl/strings` compiles and links the same whether it gets one library or the closure of it.
"""

_ROOT = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

cc_library(
    name = "absl",
    hdrs = glob(["include/absl/**/*.h", "include/absl/**/*.inc"]),
    linkopts = [
        "-Wl,--as-needed",
        "-labsl_status",
        "-labsl_statusor",
        "-labsl_cord",
        "-labsl_str_format_internal",
        "-labsl_strings",
        "-labsl_throw_delegate",
        "-labsl_raw_hash_set",
        "-labsl_hash",
        "-labsl_city",
        "-labsl_low_level_hash",
        "-labsl_synchronization",
        "-labsl_time",
        "-labsl_base",
        "-labsl_raw_logging_internal",
        "-labsl_bad_optional_access",
        "-labsl_bad_variant_access",
        "-lpthread",
    ],
    visibility = ["//visibility:public"],
)
"""

# package: targets. Only what Headwise uses; add a line to use more.
_LABELS = {
    "absl/algorithm": ["container"],
    "absl/base": ["core_headers"],
    "absl/cleanup": ["cleanup"],
    "absl/container": ["btree", "flat_hash_map", "flat_hash_set", "inlined_vector"],
    "absl/functional": ["function_ref"],
    "absl/memory": ["memory"],
    "absl/numeric": ["bits", "int128"],
    "absl/status": ["status", "statusor"],
    "absl/strings": ["strings", "str_format", "cord"],
    "absl/synchronization": ["synchronization"],
    "absl/time": ["time"],
    "absl/types": ["span", "optional"],
}

def _impl(ctx):
    include = ctx.path(ctx.attr.include)
    if not include.get_child("status").exists:
        fail("Abseil is not installed: expected %s. Run tools/setup.sh, or install libabsl-dev." % include)
    ctx.symlink(include, "include/absl")
    ctx.file("BUILD", _ROOT)
    for package, names in _LABELS.items():
        ctx.file(package + "/BUILD", "\n".join([
            'alias(name = "%s", actual = "//:absl", visibility = ["//visibility:public"])' % name
            for name in names
        ]))

debian_absl = repository_rule(
    implementation = _impl,
    attrs = {"include": attr.string(default = "/usr/include/absl")},
    local = True,
)
