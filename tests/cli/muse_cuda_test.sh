#!/usr/bin/env bash
# The muse binary that was built with CUDA, where there is no GPU, or none that it may see.
set -u

muse=$PWD/model/muse_cuda program=$muse
# shellcheck source=tests/cli/expect.sh
source tests/cli/expect.sh
config=$PWD/tests/cli/tiny.textproto
text=$PWD/LICENSE
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/muse_cuda.XXXXXX")
cd "$work" || exit 1
export CUDA_VISIBLE_DEVICES=

expect 0 '^muse 0\.' --version
expect 0 '^CUDA +[0-9]+\.[0-9]+, for sm_[0-9]+a?(, sm_[0-9]+a?)*$' --version
expect 4 '^error: --device cuda: no CUDA device: .*; expected an NVIDIA GPU with its driver; .*try --device cpu' train --config "$config" --set data.path="$text" --device cuda
for command in bench generate eval; do
  expect 4 '^error: --device cuda: no CUDA device' "$command" --device cuda
done
check 'it leaves nothing' test ! -e runs
check 'one line' test "$("$muse" train --device cuda 2>&1 < /dev/null | wc -l)" = 1
expect 2 "did you mean 'cuda'" train --device cude
expect 0 'done after step 2' train --config "$config" --set data.path="$text" --steps 2

finish
