"""cuda_kernels: .cu files that nvcc compiles for the GPU and g++ for the emulation.

    cuda_kernels(
        name = "cuda",
        srcs = ["cuda.cu"],
        hdrs = ["cuda.h"],
        deps = [":contract"],
    )

makes :cuda, whose code is in namespace headwise::cuda, incompatible where no toolkit was found; and :cuda_emulated, in
headwise::cuda_emulated, a plain C++ library. One program may link both. The sources include
"kernels/emulation/cuda_kernel.h", which says what they may use.
"""

load("@bazel_skylib//rules:write_file.bzl", "write_file")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("//third_party/cuda:cuda.bzl", "cuda_library")

def cuda_kernels(name, srcs, hdrs = [], deps = [], kernel_deps = [], textual_hdrs = [], tags = [], first_gpu_only = False, **kwargs):
    """See the top of the file.

    Args:
      name: of the library that nvcc makes; name + "_emulated" is the other.
      srcs: .cu files of this package.
      hdrs: .h files, with the launchers, declared in both namespaces, and .cuh files.
      deps: of both libraries.
      kernel_deps: other cuda_kernels, written //folder:name; each library depends on their library of its own kind.
      textual_hdrs: .cuh files, included by srcs only.
      tags: of both libraries.
      first_gpu_only: of the cuda_library.
      **kwargs: visibility, testonly.
    """
    cuda_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs + textual_hdrs,
        first_gpu_only = first_gpu_only,
        local_defines = ["HW_CUDA_NAMESPACE=cuda"],
        tags = tags,
        deps = deps + kernel_deps + [Label("//kernels/emulation:cuda_kernel_nvcc")],
        **kwargs
    )

    # g++ does not know .cu: a .cc of one line includes each. Messages and sanitizers name the .cu.
    wrappers = []
    for source in srcs:
        wrapper = "%s_emulated_%s.cc" % (name, source[:-len(".cu")])
        write_file(
            name = wrapper[:-len(".cc")] + "_source",
            out = wrapper,
            content = ['#include "%s"' % "/".join([p for p in [native.package_name(), source] if p]), ""],
        )
        wrappers.append(wrapper)
    cc_library(
        name = name + "_emulated",
        srcs = wrappers,
        hdrs = [file for file in hdrs if file.endswith(".h")],
        copts = ["-Wno-unknown-pragmas"],  # #pragma unroll
        local_defines = ["HW_CUDA_NAMESPACE=cuda_emulated"],
        tags = tags,
        textual_hdrs = srcs + textual_hdrs + [file for file in hdrs if not file.endswith(".h")],
        deps = deps + [dep + "_emulated" for dep in kernel_deps] + [Label("//kernels/emulation:cuda_kernel")],
        **kwargs
    )
