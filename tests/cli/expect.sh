# shellcheck shell=bash disable=SC2154
#
# Sourced by the tests of programs, after `program` was set to the path of one: counts what is as expected, in $passed and
# $failed, and prints what is not.
passed=0
failed=0

# expect CODE 'PATTERN' ARGS...: runs the program; its exit code and its output (both streams) must be as said.
expect() {
  local code=$1 pattern=$2
  shift 2
  local output got
  output=$("$program" "$@" 2>&1 < /dev/null)
  got=$?
  if [ "$got" = "$code" ] && grep -qE -- "$pattern" <<< "$output"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s %s\n  expected exit code %s and /%s/, found %s and:\n%s\n' "${program##*/}" "$*" "$code" "$pattern" "$got" "$output"
  fi
}

# check 'WHAT' COMMAND...: the command must succeed.
check() {
  local what=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); printf 'FAILED: %s: %s\n' "$what" "$*"; fi
}

# finish: prints the counts; the status is that of the test.
finish() {
  echo "$passed passed, $failed failed"
  ((failed == 0))
}
