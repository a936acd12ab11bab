"""system_library: a library that the operating system's packages installed, as an external repository.

The repository holds links to the library's own files and nothing else. A repository rooted at /usr would also work, until
a target adds its include directory to the search path: `-isystem /usr/include` breaks g++'s own `#include_next`.
"""

def _impl(ctx):
    for link, target in ctx.attr.links.items():
        if not ctx.path(target).exists:
            fail("%s is not installed: expected %s. Run tools/setup.sh, or install the Debian package %s." %
                 (ctx.name, target, ctx.attr.package))
        ctx.symlink(target, link)
    ctx.symlink(ctx.path(ctx.attr.build_file), "BUILD.bazel")

system_library = repository_rule(
    implementation = _impl,
    attrs = {
        "build_file": attr.label(mandatory = True, doc = "The BUILD file of the repository's root."),
        "links": attr.string_dict(mandatory = True, doc = "Path in the repository: the installed file or directory."),
        "package": attr.string(mandatory = True, doc = "The Debian package that installs it, for the error message."),
    },
    local = True,
)
