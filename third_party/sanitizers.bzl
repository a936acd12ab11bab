"""unless_sanitized: flags that cost minutes under a sanitizer and show nothing there.

    copts = unless_sanitized(["-O3"]),
"""

def unless_sanitized(flags):
    """`flags`, but nothing where .bazelrc builds for a sanitizer."""
    return select({
        "//third_party:sanitize": [],
        "//third_party:tsan": [],
        "//conditions:default": flags,
    })
