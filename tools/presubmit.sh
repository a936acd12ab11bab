#!/usr/bin/env bash
# What must hold before a change is handed in, apart from the tests: formatting and lints of the tracked files, in a minute.
#
#   tools/presubmit.sh                  everything; clang-tidy on what differs from HEAD, or if nothing does, from HEAD~1
#   tools/presubmit.sh --base REF       clang-tidy on what differs from REF
#   tools/presubmit.sh --tidy-all       clang-tidy on every C++ file (long)
#   tools/presubmit.sh --only NAME      one check: format headers build arrows cuda lint_test shell tidy
#
# Every check runs, whatever the others say. The last line is "presubmit: N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# clang-tidy takes seconds a file. A change of more files than this is checked in part, and says so.
readonly TIDY_MOST=40

base="" tidy_all=0 only=""
while (($#)); do
  case $1 in
    --base) base=${2:?--base needs a commit} && shift 2 ;;
    --only) only=${2:?--only needs a check} && shift 2 ;;
    --tidy-all) tidy_all=1 && shift ;;
    *) echo "presubmit: unknown argument '$1'; the top of tools/presubmit.sh lists them" >&2 && exit 2 ;;
  esac
done

# Tracked files that exist, so that a deletion that is not committed yet does not count. The shims of bazel_compat and
# the outside workspace are repositories of their own: their labels are not ours.
mapfile -t files < <(git ls-files | while read -r file; do [[ -f $file ]] && echo "$file"; done)
mapfile -t cpp < <(printf '%s\n' "${files[@]}" | grep -E '\.(h|cc|cu|cuh)$')
mapfile -t ours < <(printf '%s\n' "${files[@]}" | grep -vE '^(third_party/bazel_compat|tests/external)/')

check_format() { clang-format --dry-run --Werror "${cpp[@]}" 2>&1 | grep -E 'error:' | sort -u; ((PIPESTATUS[0] == 0)); }
check_headers() { tools/lint/check_headers.sh "${ours[@]}"; }
check_build() { python3 -B tools/lint/build_lint.py "${ours[@]}"; }
check_arrows() { python3 -B tools/lint/arrows_lint.py "${ours[@]}"; }
check_cuda() { python3 -B tools/lint/cuda_lint.py "${ours[@]}"; }
check_lint_test() {
  local output
  output=$(cd tools/lint && python3 -B -m unittest lint_test 2>&1) || { echo "$output" && return 1; }
}
check_shell() {
  local scripts
  mapfile -t scripts < <(grep -lE '^#!.*\b(ba)?sh$' "${files[@]}")
  shellcheck -x "${scripts[@]}"
}

changed_cpp() {
  if ((tidy_all)); then
    printf '%s\n' "${cpp[@]}"
    return
  fi
  if [[ -z $base ]]; then
    base=HEAD
    git diff --quiet HEAD -- && git rev-parse --quiet --verify HEAD~1 >/dev/null && base=HEAD~1
  fi
  git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' | grep -v '^tests/external/'
}

# g++ compiles this code; clang's own errors, where C++20 is ahead of clang 14, are left out.
check_tidy() {
  local changed generated
  mapfile -t changed < <(changed_cpp)
  ((${#changed[@]})) || return 0
  if ((!tidy_all && ${#changed[@]} > TIDY_MOST)); then
    echo "${#changed[@]} files changed; clang-tidy on the first $TIDY_MOST of them (--tidy-all for all)"
    changed=("${changed[@]:0:TIDY_MOST}")
  fi
  generated=$(mktemp -d)
  git ls-files -z '*.proto' | xargs -0 --no-run-if-empty protoc --cpp_out="$generated"
  printf '%s\0' "${changed[@]}" | xargs -0 -P "$(nproc)" -I{} clang-tidy --quiet {} -- \
    -x c++ -std=c++20 -march=native -I. -I"$generated" -isystem /usr/include/eigen3 2>/dev/null |
    grep -E -A3 '(warning|error): .*\[(bugprone|google|misc|performance|readability)-'
  local clean=$((PIPESTATUS[2] == 1))
  rm -rf "$generated"
  ((clean))
}

for tool in clang-format clang-tidy g++ protoc python3 shellcheck; do
  command -v "$tool" >/dev/null || { echo "presubmit: no $tool here; tools/setup.sh installs it" >&2 && exit 2; }
done

indent() { while IFS= read -r line; do [[ -z $line ]] || echo "  $line"; done <<<"$1"; }

passed=0 failed=0
for name in format build arrows cuda lint_test shell headers tidy; do
  [[ -z $only || $only == "$name" ]] || continue
  if output=$("check_$name" 2>&1); then
    passed=$((passed + 1))
    echo "presubmit: ok      $name"
  else
    failed=$((failed + 1))
    echo "presubmit: FAILED  $name"
  fi
  indent "$output"
done
if ((passed + failed == 0)); then
  echo "presubmit: no check is called '$only'" >&2
  exit 2
fi
echo "presubmit: $passed passed, $failed failed"
((failed == 0))
