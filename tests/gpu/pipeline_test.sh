#!/usr/bin/env bash
# What decoder_benchmark writes is what report.py reads: the benchmark, on emulated kernels, then the report of it; what does not
# begin in time is said. Arguments: the benchmark, report.py.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "pipeline_test: $*" >&2 && exit 1; }

mkdir "$work/benchmark"
echo '{}' >"$work/manifest.json"
"$1" --tiny --quick --json "$work/benchmark/decoder.json"
python3 -B "$2" "$work/manifest.json" "$work" | tee "$work/table"
rows=0
while read -r kernel pass; do
  grep -qE "^$kernel +$pass +.*\|( +[0-9.]+){3} +([0-9.]+|-) +[0-9]+$" "$work/table" || fail "no row of $kernel $pass"
  rows=$((rows + 1))
done <<'LIST'
adamw step
prepare_qkv forward
prepare_qkv backward
rms_norm forward
rms_norm backward
add forward
sigmoid_gate forward
sigmoid_gate backward
residual_gate forward
residual_gate backward
convert to fp32
swiglu forward
swiglu backward
embedding forward
embedding backward
cross_entropy both
attention forward
attention backward
LIST
((rows == 18)) || fail "$rows rows looked for"
grep -qE "^adamw 2x4x300 +Headwise +[0-9.]+ us$" "$work/table" || fail "no row to compare PyTorch with"

"$1" --tiny --seconds 0 --json "$work/benchmark/decoder.json" >/dev/null
python3 -B "$2" "$work/manifest.json" "$work" >"$work/table"
grep -qE "^attention +backward .*\| skipped: out of time$" "$work/table" || fail "nothing was left out"
