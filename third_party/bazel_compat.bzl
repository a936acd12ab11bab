"""bundled_repository: an external repository whose files lie inside Headwise, found wherever Headwise itself is."""

def _impl(ctx):
    source = ctx.path(Label("//:BUILD")).dirname
    for part in ctx.attr.directory.split("/"):
        source = source.get_child(part)
    for child in source.readdir():
        ctx.symlink(child, child.basename)

bundled_repository = repository_rule(
    implementation = _impl,
    attrs = {"directory": attr.string(mandatory = True, doc = "Path of the files from Headwise's root.")},
    local = True,
)
