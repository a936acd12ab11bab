"""device_code_test: what nvcc made of a cuda_library. Prints registers, shared memory and spills of its kernels, and fails
on an approximate or flushing instruction, on local memory in the kernels that no_spills names, and where an instruction is
missing. Needs a toolkit, no GPU.

    device_code_test(
        name = "device_code_test",
        size = "small",
        library = ":cuda",
        no_spills = ["^Forward<"],
    )

    bazel test //kernels/NAME:device_code_test --test_output=all
"""

def device_code_test(name, library, size = "small", no_spills = [], instructions = [], tags = []):
    """Declares the test.

    Args:
      name: of the test.
      library: a cuda_library.
      size: of the test.
      no_spills: regular expressions; a kernel whose name with template arguments one of them is found in must use no local
        memory on any GPU that --//third_party/cuda:archs lists. One that fits no kernel fails the test.
      instructions: REGEX=OPCODE: the kernels that the regular expression fits have the instruction in their PTX; of
        REGEX=OPCODE|OPCODE, one of them.
      tags: of the test, besides `cuda`.
    """
    groups = []
    for group in ["ptx", "ptxas"]:
        groups.append("%s_%s" % (name, group))
        native.filegroup(
            name = groups[-1],
            srcs = [library],
            output_group = group,
            tags = ["cuda"],
        )
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//third_party/cuda:device_code.py"],
        args = ["'--no-spills=%s'" % pattern.replace("$", "$$") for pattern in no_spills] +
               ["'--instruction=%s'" % wanted.replace("$", "$$") for wanted in instructions] +
               ["$(rootpaths :%s)" % group for group in groups],
        data = groups,
        tags = tags + ["cuda"],
    )
