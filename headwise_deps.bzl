"""headwise_deps: every outside library of Headwise, for its own WORKSPACE and for other repositories' WORKSPACE files.

A repository that is already declared under the same name is left alone, so a user's own version wins.
"""

load("//third_party:bazel_compat.bzl", "bundled_repository")
load("//third_party/absl:absl.bzl", "debian_absl")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")

def _missing(name):
    return name not in native.existing_rules()

# name: (directory on Debian, build file)
_DEBIAN = {
    "cli11": ("/usr", "@headwise//third_party/cli11:cli11.BUILD"),
    "com_google_benchmark": ("/usr", "@headwise//third_party/benchmark:benchmark.BUILD"),
    "com_google_googletest": ("/usr", "@headwise//third_party/googletest:googletest.BUILD"),
    "com_google_protobuf": ("/usr", "@headwise//third_party/protobuf:protobuf.BUILD"),
    "eigen": ("/usr/include/eigen3", "@headwise//third_party/eigen:eigen.BUILD"),
    "nlohmann_json": ("/usr", "@headwise//third_party/json:json.BUILD"),
    "onednn": ("/usr", "@headwise//third_party/onednn:onednn.BUILD"),
}

# What Bazel's own @bazel_tools asks for, from Debian's bazel-* packages.
_BAZEL = {
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def headwise_deps():
    """Declares the repositories that Headwise needs and that are not declared yet."""
    for name in ["rules_cc", "remote_coverage_tools"]:
        if _missing(name):
            bundled_repository(name = name, directory = "third_party/bazel_compat/" + name)
    for name, path in _BAZEL.items():
        if _missing(name):
            native.local_repository(name = name, path = path)
    for name, (path, build_file) in _DEBIAN.items():
        if _missing(name):
            native.new_local_repository(name = name, path = path, build_file = build_file)
    if _missing("com_google_absl"):
        debian_absl(name = "com_google_absl")
    if _missing("local_cuda"):
        cuda_configure(name = "local_cuda")
