#!/bin/sh
echo "bazel coverage needs Bazel's coverage tools, which this workspace does not download." >&2
exit 1
