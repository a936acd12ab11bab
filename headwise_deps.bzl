"""headwise_deps: every outside library of Headwise, for its own WORKSPACE and for other repositories' WORKSPACE files.

    local_repository(name = "headwise", path = "...")
    load("@headwise//:headwise_deps.bzl", "headwise_deps")
    headwise_deps()

Nothing is downloaded: libraries are what tools/setup.sh installs. A repository that is already declared under the same
name is left alone, so a user's own version wins if it is declared first.
"""

load("//third_party:bazel_compat.bzl", "bundled_repository")
load("//third_party:system_library.bzl", "system_library")
load("//third_party/absl:absl.bzl", "debian_absl")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/mpi:mpi_configure.bzl", "mpi_configure")

# repository: (Debian package, build file, path in the repository: what the package installed)
_SYSTEM = {
    "cli11": (
        "libcli11-dev",
        Label("//third_party/cli11:cli11.BUILD"),
        {"include/CLI": "/usr/include/CLI"},
    ),
    "com_google_benchmark": (
        "libbenchmark-dev",
        Label("//third_party/benchmark:benchmark.BUILD"),
        {"include/benchmark": "/usr/include/benchmark"},
    ),
    "com_google_googletest": (
        "libgmock-dev",
        Label("//third_party/googletest:googletest.BUILD"),
        {"include/gmock": "/usr/include/gmock", "include/gtest": "/usr/include/gtest"},
    ),
    "com_google_protobuf": (
        "libprotobuf-dev and protobuf-compiler",
        Label("//third_party/protobuf:protobuf.BUILD"),
        {"bin/protoc": "/usr/bin/protoc", "include/google/protobuf": "/usr/include/google/protobuf"},
    ),
    "eigen": (
        "libeigen3-dev",
        Label("//third_party/eigen:eigen.BUILD"),
        {"Eigen": "/usr/include/eigen3/Eigen", "unsupported": "/usr/include/eigen3/unsupported"},
    ),
    "nlohmann_json": (
        "nlohmann-json3-dev",
        Label("//third_party/json:json.BUILD"),
        {"include/nlohmann": "/usr/include/nlohmann"},
    ),
    "onednn": (
        "libdnnl-dev",
        Label("//third_party/onednn:onednn.BUILD"),
        {"include/oneapi/dnnl": "/usr/include/oneapi/dnnl"},
    ),
}

# What Bazel's own @bazel_tools asks for, from Debian's bazel-* packages.
_BAZEL = {
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def _missing(name):
    return name not in native.existing_rules()

def headwise_deps():
    """Declares the repositories that Headwise needs and that are not declared yet."""
    for name in ["rules_cc", "remote_coverage_tools"]:
        if _missing(name):
            bundled_repository(name = name, directory = "third_party/bazel_compat/" + name)
    for name, path in _BAZEL.items():
        if _missing(name):
            native.local_repository(name = name, path = path)
    for name, (package, build_file, links) in _SYSTEM.items():
        if _missing(name):
            system_library(name = name, package = package, build_file = build_file, links = links)
    if _missing("com_google_absl"):
        debian_absl(name = "com_google_absl")
    if _missing("local_cuda"):
        cuda_configure(name = "local_cuda")
    if _missing("openmpi"):
        mpi_configure(name = "openmpi")
