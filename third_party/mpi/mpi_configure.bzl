"""mpi_configure: looks for Open MPI and defines @openmpi//:mpi.

Looks at --repo_env=MPI_HOME=DIR, then where Debian's libopenmpi-dev installs it. --repo_env=HW_MPI=0 turns MPI off.
Without Open MPI the target exists but is incompatible, so that `bazel test //...` skips everything that needs it.
"""

# The C++ bindings were removed from MPI-3; without the define, Debian's mpi.h includes what is left of them.
_FOUND = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    defines = ["OMPI_SKIP_MPICXX=1"],
    includes = ["include"],
    linkopts = ["-L{lib}", "-Wl,-rpath,{lib}", "-lmpi"],
    visibility = ["//visibility:public"],
)
"""

_ABSENT = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

cc_library(
    name = "mpi",
    target_compatible_with = ["@platforms//:incompatible"],
    visibility = ["//visibility:public"],
)
"""

_DEBIAN = "/usr/lib/x86_64-linux-gnu/openmpi"

def _impl(ctx):
    if ctx.os.environ.get("HW_MPI") == "0":
        ctx.file("BUILD.bazel", _ABSENT)
        return
    for home in [ctx.os.environ.get("MPI_HOME"), _DEBIAN]:
        if home and ctx.path(home + "/include/mpi.h").exists:
            ctx.symlink(home + "/include", "include")
            ctx.file("BUILD.bazel", _FOUND.format(lib = home + "/lib"))
            return
    ctx.file("BUILD.bazel", _ABSENT)

mpi_configure = repository_rule(
    implementation = _impl,
    environ = ["HW_MPI", "MPI_HOME"],
    local = True,
    configure = True,
)
