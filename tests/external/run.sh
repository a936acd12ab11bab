#!/usr/bin/env bash
# Builds and tests the outside workspace, then runs its program. Arguments go to `bazel test`; BAZEL names the command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
read -ra bazel <<<"${BAZEL:-bazel}"

"${bazel[@]}" test "$@" //...
"${bazel[@]}" run //:train_qkv
"${bazel[@]}" run //:train_checkpoint
