#!/usr/bin/env bash
# run.sh with programs that pass, fail, hang and find no GPU: it goes on after a failure, says what was not there, and its exit
# status and files say the same. pack.sh where it packs nothing. Argument: the folder of both.
# shellcheck disable=SC2016  # what the programs below expand, they expand themselves
set -euo pipefail
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "run_test: $*" >&2 && exit 1; }

# program PATH LINE...: a shell script.
program() {
  local path=$1
  shift
  printf '%s\n' '#!/usr/bin/env bash' "$@" >"$path" && chmod 755 "$path"
}

bundle=$work/gpu_check
mkdir -p "$bundle"/{tests,benchmarks} "$work/bin"
cp "$folder"/{run.sh,report.py} "$bundle"
echo '{"commit": "abc"}' >"$bundle/manifest.json"
# A python3 without PyTorch, whatever this machine has.
program "$work/bin/python3" '[[ $* == *"import torch"* ]] && exit 1' "exec $(command -v python3) \"\$@\""
export PATH=$work/bin:$PATH

run() { "$bundle/run.sh" --out "$work/out" "$@" >"$work/stdout" 2>"$work/stderr"; }

# Without programs, with a wrong argument, without a GPU: one clear line, exit status 2.
run && fail "passed without programs"
grep -q "no tests and benchmarks beside run.sh" "$work/stderr" || fail "$(cat "$work/stderr")"
run --fast && fail "took a wrong argument"
grep -q "unknown argument '--fast'" "$work/stderr" || fail "$(cat "$work/stderr")"

program "$bundle/benchmarks/bench" 'echo "speed"' 'echo "{\"benchmark\": \"other\", \"cases\": [], \"device\": {\"name\": \"Fake\"},' \
  '\"copy\": {\"bytes_per_second\": 1e12}}" >"${@: -3:1}"'
program "$bundle/tests/a_test" 'echo "This test needs a GPU: no CUDA device: no driver" >&2' 'exit 1'
status=0 && run || status=$?
((status == 2)) || fail "exit status $status without a GPU"
[[ $(wc -l <"$work/stderr") == 1 && ! -s $work/stdout ]] || fail "not one line: $(cat "$work/stderr")"
grep -q "no GPU can be used here: This test needs a GPU: no CUDA device: no driver" "$work/stderr" || fail "$(cat "$work/stderr")"

# All well. There is no compute-sanitizer and no PyTorch.
program "$bundle/tests/a_test" 'echo "On Fake GPU"'
run || fail "exit status $? with everything well: $(cat "$work/stdout")"
tail -1 "$work/stdout" | grep -qx "gpu_check: 2 passed, 0 failed, 5 not there; not there: memcheck, racecheck, synccheck, initcheck, PyTorch" ||
  fail "$(tail -1 "$work/stdout")"
grep -q "Fake: copy 1.00 TB/s" "$work/stdout" || fail "no table: $(cat "$work/stdout")"
grep -q "speed" "$work/out/log.txt" || fail "the log lacks what the benchmark said"
[[ $(python3 -c "import json; print(len(json.load(open('$work/out/result.json'))['steps']))") == 7 ]] || fail "result.json"

# A test that fails and a sanitizer that finds something do not stop the rest.
program "$bundle/tests/b_test" 'echo "q: 3 of 9 differ"; exit 1'
program "$work/bin/compute-sanitizer" '[[ $* == *"-*"* ]] && exit 0' '[[ $2 == racecheck ]] && exit 99' 'exit 0'
status=0 && run || status=$?
((status == 1)) || fail "exit status $status with failures"
tail -1 "$work/stdout" | grep -qx \
  "gpu_check: 8 passed, 3 failed, 1 not there; failed: b_test, racecheck a_test, racecheck b_test; not there: PyTorch" ||
  fail "$(tail -1 "$work/stdout")"
grep -q "q: 3 of 9 differ" "$work/out/log.txt" || fail "the log lacks why"

# --quick: memcheck only, and no large tests. What hangs is ended.
program "$bundle/tests/b_test" '[[ $* == *"-GpuLarge"* ]] || exit 0' 'sleep 100'
sed -i 's/test_limit=35/test_limit=2/' "$bundle/run.sh"
status=0 && run --quick || status=$?
((status == 1)) || fail "exit status $status with a test that hangs"
tail -1 "$work/stdout" | grep -qx "gpu_check: 4 passed, 1 failed, 1 not there; failed: b_test; not there: PyTorch" ||
  fail "$(tail -1 "$work/stdout")"
grep -q "b_test .*not done after 1 s" "$work/stdout" || fail "$(cat "$work/stdout")"

# A compute-sanitizer that does not work here is not there.
program "$bundle/tests/b_test" 'exit 0'
program "$work/bin/compute-sanitizer" 'echo "Device not supported"; exit 1'
run --quick || fail "exit status $? with a sanitizer that does not work"
grep -q "memcheck .*absent .*does not work on this GPU" "$work/stdout" || fail "$(cat "$work/stdout")"

# Without cuBLAS, what opens it is not there; it is found where a toolkit has it.
program "$work/bin/ldconfig" 'exit 0'
program "$bundle/tests/b_test" '[[ $LD_LIBRARY_PATH != *"/toolkit/lib64"* ]] || exit 0' 'echo "no cuBLAS (libcublas.so.13: not found)"; exit 1'
CUDA_HOME=$work/toolkit run --quick || fail "exit status $? without cuBLAS"
grep -q "b_test .*absent" "$work/stdout" || fail "$(cat "$work/stdout")"
mkdir -p "$work/toolkit/lib64" && touch "$work/toolkit/lib64/libcublas.so.13"
CUDA_HOME=$work/toolkit run --quick || fail "exit status $? with cuBLAS in a toolkit"
grep -q "b_test .*passed" "$work/stdout" || fail "$(cat "$work/stdout")"

# muse bench's lines are rows of the result.
mkdir -p "$bundle/models"
program "$bundle/models/model_muse_cuda" '[[ $1 == bench && $* == *"--json"* ]] || exit 1' \
  'echo "{\"name\": \"train/fused/rate\", \"unit\": \"tokens/s\", \"value\": 5e5, \"tokens\": 8192, \"preset\": \"$6\", \"layers\": 6}"'
export CUDA_HOME=$work/toolkit
run || fail "exit status $? with a model: $(cat "$work/stdout")"
[[ $(wc -l <"$work/out/rows.jsonl") == 2 ]] || fail "rows: $(cat "$work/out/rows.jsonl")"
grep -qE "^train muse_17m, 6 layers, 8192 tokens +Headwise +500000.0 tokens/s" "$work/stdout" || fail "no row: $(cat "$work/stdout")"
grep -qE "^train muse_17m, 6 layers, 8192 tokens +PyTorch: not present" "$work/stdout" || fail "no line of PyTorch's: $(cat "$work/stdout")"

# pack.sh builds nothing for a flag, nor where Bazel finds nothing out.
program "$work/bin/bazel" "echo \"\$1\" >>$work/calls" '[[ $* != *"$REFUSED"* ]] || exit 7' 'echo //a:b'
# pack STATUS ARGUMENT...: with that Bazel.
pack() {
  local expected=$1 status=0
  shift
  BAZEL=$work/bin/bazel "$folder/pack.sh" "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  ((status == expected)) || fail "exit status $status of pack.sh $*: $(cat "$work/stderr")"
}
pack 0 --help
grep -q "pack.sh \[ARCHIVE\]" "$work/stdout" || fail "no usage: $(cat "$work/stdout")"
pack 2 "$work/archive" --fast
grep -q "unknown argument '--fast'" "$work/stderr" || fail "$(cat "$work/stderr")"
[[ ! -e $work/calls ]] || fail "a flag called Bazel"
for refused in tests\( "cc_binary, //..." muse_cuda; do
  REFUSED=$refused pack 1 "$work/archive"
  grep -qx "pack: bazel query failed" "$work/stderr" || fail "$refused: $(cat "$work/stderr")"
done
grep -qv query "$work/calls" && fail "built after a query that failed"
[[ ! -e $work/archive ]] || fail "left an archive"
