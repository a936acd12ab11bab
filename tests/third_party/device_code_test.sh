#!/usr/bin/env bash
# device_code.py refuses a kernel that spills, one with an approximate instruction, one that ptxas may contract, one without an instruction
# that it should have and a pattern that fits no kernel, names each, and passes the others. Arguments: device_code.py, then the output groups of a library with all kinds.
set -euo pipefail

check=$1
shift
reports=() ptx=()
for file in "$@"; do
  if [[ $file == *.ptx ]]; then ptx+=("$file"); else reports+=("$file"); fi
done

fail() { echo "device_code_test: $*" >&2 && exit 1; }

# refuses MESSAGE ARGUMENT...: the check fails, and its message has a line with MESSAGE.
refuses() {
  local message=$1 output
  shift
  if output=$("$check" "$@" 2>&1); then fail "passed, expected '$message': $*"; fi
  grep -qE "$message" <<<"$output" || fail "expected '$message', found: $output"
}

# finds INSTRUCTION: the check misses no instruction, whatever else it refuses.
finds() {
  local output
  output=$("$check" --instruction="$1" "${ptx[@]}" 2>&1) || true
  if grep -q "has no" <<<"$output"; then fail "did not find '$1': $output"; fi
}

"$check" --no-spills='^Clean$' "${reports[@]}" | tee /dev/stderr | grep -qE '^Spilling .* [1-9][0-9]* +[1-9][0-9]*$' ||
  fail "the table does not show the stack and the spills"
for report in "${reports[@]}"; do
  refuses "^Spilling on sm_[0-9]+[a-z]* uses local memory: stack frame of [1-9]" --no-spills=Spill "$report"
done
refuses "'Clear' fits no kernel" --no-spills=Clear "${reports[@]}"
refuses "\.ptx:[0-9]+: rsqrt\.approx\.f32: not an operation" "${ptx[@]}"
refuses "\.ptx:[0-9]+: mul\.f32: not an operation" "${ptx[@]}"
refuses "Clean has no mma\.sync" --instruction='^Clean$=mma.sync' "${ptx[@]}"
refuses "Clean has no mma\.sync\|ex2\.approx\.f32" --instruction='^Clean$=mma.sync|ex2.approx.f32' "${ptx[@]}"
refuses "'Clear' fits no kernel" --instruction='Clear=mma.sync' "${ptx[@]}"
finds '^Approximate$=rsqrt.approx.f32'
finds '^Approximate$=mma.sync|rsqrt.approx.f32'
refuses "no kernel in these files" /dev/null
