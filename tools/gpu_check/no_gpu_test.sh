#!/usr/bin/env bash
# Without a GPU a GPU test fails and says why, and the benchmark exits with 3. Arguments: a test, a benchmark.
set -euo pipefail
fail() { echo "no_gpu_test: $*" >&2 && exit 1; }

if "$1" --gtest_filter='-*' >/dev/null 2>&1; then
  echo "this machine has a GPU: nothing to see here"
  exit 0
fi
status=0
said=$("$1" 2>&1) || status=$?
((status == 1)) || fail "the test's exit status is $status"
[[ $said == "This test needs a GPU: no CUDA device: "* ]] || fail "the test said '$said'"
status=0
said=$("$2" 2>&1) || status=$?
((status == 3)) || fail "the benchmark's exit status is $status"
[[ $said == "gpu_benchmark: no CUDA device: "* ]] || fail "the benchmark said '$said'"
