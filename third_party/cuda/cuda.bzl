"""cuda_library: .cu files compiled by nvcc, as a C++ library that cc_* rules can depend on.

    cuda_library(
        name = "cuda",
        srcs = ["cuda.cu"],
        hdrs = ["cuda.h"],
        deps = ["//core/heads:packed_qkv"],
    )

Host code is compiled with the flags of the C++ build. Device code keeps the numerics contract: no contraction of a*b+c
(a kernel that wants an fma says __fmaf_rn), no flushing of subnormals, division and square root correctly rounded.
--//third_party/cuda:archs=sm_90a chooses other GPUs. Where no toolkit was found, the target is skipped.

Two output groups say what device code became: `ptx`, one file per source and GPU, and `ptxas`, one file per source with the
assembler's report of registers, shared memory, stack and spills. device_code.bzl tests them.
"""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_cuda//:defs.bzl", "CUDA_PATH", "CUDA_VERSION")

_NUMERICS = ["-fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"]

def _gencode(archs):
    """nvcc's flags for the given GPUs, ["sm_80", "sm_90a"]."""
    flags = []
    for arch in archs:
        if not arch.startswith("sm_"):
            fail("//third_party/cuda:archs: expected sm_80, sm_90a, ..., found '%s'." % arch)
        number = arch[len("sm_"):]
        flags.append("-gencode=arch=compute_%s,code=sm_%s" % (number, number))

    # PTX, so that later GPUs can run what was compiled for the last one. A number with a letter promises one GPU only.
    last = archs[-1][len("sm_"):]
    if last.isdigit():
        flags.append("-gencode=arch=compute_%s,code=compute_%s" % (last, last))
    return flags

def _host_flags(flags):
    """The C++ compiler's flags in the form nvcc takes them. It must see -std itself, to parse device code by it."""
    return [
        flag if flag.startswith("-std=") else "-Xcompiler=" + flag.replace(",", "\\,")
        for flag in flags
    ]

def _args(ctx, toolchain, context):
    """nvcc's flags but for the GPUs and the files."""
    optimized = ctx.var["COMPILATION_MODE"] == "opt"
    args = ctx.actions.args()
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(_host_flags(ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts))
    args.add_all(_NUMERICS)
    args.add_all(["-Xcompiler=-fPIC", "-lineinfo", "--expt-relaxed-constexpr"])
    args.add_all(["-O3", "-DNDEBUG"] if optimized else ["-O1"])
    args.add_all(ctx.attr.copts)
    args.add_all(depset(ctx.attr.defines, transitive = [context.defines]), before_each = "-D")
    args.add_all(ctx.attr.local_defines, before_each = "-D")
    args.add_all(context.quote_includes, before_each = "-Xcompiler=-iquote", format_each = "-Xcompiler=%s")
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.system_includes, before_each = "-isystem")
    return args

# $1 nvcc, $2 its object, $3 the report of ptxas, $4 the source's name without .cu, $5 GPUs and the files for their PTX,
# "sm_80=FILE sm_90a=FILE"; then nvcc's arguments. One run of nvcc makes all of them: most of its time goes into PTX.
_NVCC = """
nvcc=$1 object=$2 report=$3 stem=$4 ptx=$5
shift 5
kept=$object.kept
mkdir -p "$kept" || exit 1
"$nvcc" "$@" -Xptxas -v --keep --keep-dir "$kept" -c -o "$object" 2>"$report"
status=$?
# The assembler's report apart, the user sees what nvcc said.
grep -vE "^ptxas info|bytes stack frame|bytes cumulative stack size" "$report" >&2
((status == 0)) || exit "$status"
for pair in $ptx; do
  arch=${pair%%=*}
  made=$kept/$stem.compute_${arch#sm_}.ptx
  [[ -f $made ]] || made=$kept/$stem.ptx  # its name where there is one GPU
  mv "$made" "${pair#*=}" || exit 1
done
rm -rf "$kept"
"""

def _compile(ctx, toolchain, context, args):
    """Declares one nvcc action per source. Returns (objects, PTX, ptxas reports)."""
    archs = ctx.attr._archs[BuildSettingInfo].value
    if ctx.attr.first_gpu_only:
        archs = archs[:1]
    gencode = _gencode(archs)
    objects, ptx, reports = [], [], []
    for source in ctx.files.srcs:
        prefix = "_objs/%s/%s" % (ctx.label.name, source.basename)
        object = ctx.actions.declare_file(prefix + ".pic.o")
        report = ctx.actions.declare_file(prefix + ".ptxas.txt")
        codes = [ctx.actions.declare_file("%s.%s.ptx" % (prefix, arch)) for arch in archs]
        ctx.actions.run_shell(
            command = _NVCC,
            arguments = [
                CUDA_PATH + "/bin/nvcc",
                object.path,
                report.path,
                source.basename[:-len(".cu")],
                " ".join(["%s=%s" % (arch, code.path) for arch, code in zip(archs, codes)]),
                args,
            ] + gencode + [source.path],
            inputs = depset([source], transitive = [context.headers, toolchain.all_files]),
            outputs = [object, report] + codes,
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
        )
        objects.append(object)
        ptx += codes
        reports.append(report)
    return objects, ptx, reports

def _cuda_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps + [ctx.attr._cudart]])

    # "#include "folder/file.h" from the root of the repository that this target is in, sources and generated files.
    root = ctx.label.workspace_root
    own = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        defines = depset(ctx.attr.defines),
        quote_includes = depset([root or ".", ctx.bin_dir.path + ("/" + root if root else "")]),
    )
    context = cc_common.merge_cc_infos(cc_infos = [
        CcInfo(compilation_context = own),
        CcInfo(compilation_context = deps.compilation_context),
    ]).compilation_context

    args = _args(ctx, toolchain, context)
    objects, ptx, reports = _compile(ctx, toolchain, context, args)
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features,
            unsupported_features = ctx.disabled_features,
        ),
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [deps.linking_context],
        alwayslink = ctx.attr.alwayslink,
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = context, linking_context = linking_context),
        OutputGroupInfo(ptx = depset(ptx), ptxas = depset(reports)),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "alwayslink": attr.bool(doc = "Link every object, referred to or not."),
        "copts": attr.string_list(doc = "More flags for nvcc."),
        "defines": attr.string_list(doc = "Macros for these sources and for all that depend on the target."),
        "deps": attr.label_list(providers = [CcInfo]),
        "first_gpu_only": attr.bool(doc = "Compile for the first GPU of //third_party/cuda:archs only: for what never runs."),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh", ".inc"]),
        "local_defines": attr.string_list(doc = "Macros for these sources only."),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "_archs": attr.label(default = "//third_party/cuda:archs"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_cudart": attr.label(default = "@local_cuda//:cudart"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, tags = [], **kwargs):
    """A library of .cu files, tagged `cuda` so that --config=cuda finds it. See the top of the file."""
    _cuda_library(name = name, tags = tags + ["cuda"], **kwargs)

def _build_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.attr.name + ".h")
    ctx.actions.write(header, """#pragma once
inline constexpr char kCudaVersion[] = "%s";
inline constexpr char kCudaArchs[] = "%s";
""" % (CUDA_VERSION, ", ".join(ctx.attr._archs[BuildSettingInfo].value)))
    return [DefaultInfo(files = depset([header]))]

cuda_build_header = rule(
    doc = "NAME.h: the toolkit's version and the GPUs that are compiled for, as C++ strings.",
    implementation = _build_header_impl,
    attrs = {"_archs": attr.label(default = "//third_party/cuda:archs")},
)
