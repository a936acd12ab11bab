"""debian_absl: Debian's libabsl-dev under the labels that Abseil's own workspace uses.

Every label is an alias of one target, because Debian links Abseil as shared libraries: a program that uses
`@com_google_absl//absl/strings` compiles and links the same whether it gets one library or the closure of it.
With --define=libraries=static (--config=bundle) its archives are linked instead, for programs that run where it is not
installed.
"""

# package: targets. Only what Headwise uses; add a line to use more.
_LABELS = {
    "absl/algorithm": ["algorithm", "container"],
    "absl/base": ["base", "config", "core_headers"],
    "absl/cleanup": ["cleanup"],
    "absl/container": ["btree", "fixed_array", "flat_hash_map", "flat_hash_set", "inlined_vector"],
    "absl/functional": ["any_invocable", "bind_front", "function_ref"],
    "absl/hash": ["hash"],
    "absl/memory": ["memory"],
    "absl/numeric": ["bits", "int128"],
    "absl/status": ["status", "statusor"],
    "absl/strings": ["cord", "str_format", "strings"],
    "absl/synchronization": ["synchronization"],
    "absl/time": ["time"],
    "absl/types": ["optional", "span", "variant"],
    "absl/utility": ["utility"],
}

# All that headers of the labels above may call.
_LIBRARIES = [
    "bad_optional_access",
    "bad_variant_access",
    "base",
    "city",
    "cord",
    "cord_internal",
    "cordz_functions",
    "cordz_info",
    "hash",
    "hashtablez_sampler",
    "int128",
    "low_level_hash",
    "raw_hash_set",
    "raw_logging_internal",
    "spinlock_wait",
    "status",
    "statusor",
    "str_format_internal",
    "strings",
    "strings_internal",
    "synchronization",
    "throw_delegate",
    "time",
    "time_zone",
]

# What those call in turn.
_NEEDED_BY_ARCHIVES = [
    "cordz_handle",
    "cordz_info",
    "debugging_internal",
    "demangle_internal",
    "exponential_biased",
    "graphcycles_internal",
    "log_severity",
    "malloc_internal",
    "stacktrace",
    "strerror",
    "symbolize",
]

_ROOT = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

cc_library(
    name = "absl",
    hdrs = glob(["include/absl/**/*.h", "include/absl/**/*.inc"]),
    linkopts = select({{
        ":static": {static},
        "//conditions:default": {shared},
    }}),
    visibility = ["//visibility:public"],
)

config_setting(
    name = "static",
    define_values = {{"libraries": "static"}},
)
"""

_ALIAS = """
alias(
    name = "{name}",
    actual = "//:absl",
    visibility = ["//visibility:public"],
)
"""

def _impl(ctx):
    include = ctx.path(ctx.attr.include)
    if not include.get_child("status").exists:
        fail("Abseil is not installed: expected %s/status. Run tools/setup.sh, or install libabsl-dev." % include)
    ctx.symlink(include, "include/absl")

    # Kept whether or not the program itself calls them: gold's --as-needed does not see what only our shared libraries call.
    shared = (["-Wl,--push-state,--no-as-needed"] + ["-labsl_" + library for library in _LIBRARIES] +
              ["-Wl,--pop-state", "-lpthread"])

    # More than _LIBRARIES, because an archive does not name what it needs itself; the linker takes what is referred to.
    archives = ["-l:libabsl_%s.a" % library for library in _LIBRARIES + _NEEDED_BY_ARCHIVES]
    static = ["-Wl,--start-group"] + archives + ["-Wl,--end-group", "-lpthread"]
    ctx.file("BUILD.bazel", _ROOT.format(shared = shared, static = static))
    for package, names in _LABELS.items():
        ctx.file(package + "/BUILD.bazel", "".join([_ALIAS.format(name = name) for name in names]))

debian_absl = repository_rule(
    implementation = _impl,
    attrs = {"include": attr.string(default = "/usr/include/absl", doc = "Where Abseil's headers are.")},
    local = True,
)
