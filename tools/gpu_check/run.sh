#!/usr/bin/env bash
# What a GPU says about the CUDA kernels, in one go: their bits against the reference, compute-sanitizer, their speed and that of
# whole models, and PyTorch doing the same work. Lies in the archive that pack.sh makes; needs a GPU and its driver. cuBLAS (of a
# toolkit, or of PyTorch), compute-sanitizer, python3 and PyTorch are used where they are there.
#
#   ./run.sh [--quick] [--out DIRECTORY]
#
# Takes at most 12 minutes, with --quick 2. A step that fails does not stop the rest. DIRECTORY (default: results, beside this
# script) gets log.txt, all that was said, and result.json, all that was found. The last line says what passed, failed and was not
# there. Exits 0 if nothing failed, 1 if something did, 2 if there is no GPU or an argument is wrong.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1

quick=0 out=$here/results
while (($#)); do
  case $1 in
    --quick) quick=1 && shift ;;
    --out)
      (($# > 1)) || { echo "gpu_check: --out needs a directory" >&2 && exit 2; }
      out=$2 && shift 2
      ;;
    *) echo "gpu_check: unknown argument '$1'; the top of run.sh lists them" >&2 && exit 2 ;;
  esac
done

tests=("$here"/tests/*) benchmarks=("$here"/benchmarks/*)
[[ -x ${tests[0]} && -x ${benchmarks[0]} ]] || { echo "gpu_check: no tests and benchmarks beside run.sh; run it from the archive that pack.sh makes" >&2 && exit 2; }

# Libraries that the programs need and a machine need not have.
libraries=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Every GPU test says so if there is no GPU, before it runs anything.
if ! probe=$(LD_LIBRARY_PATH=$libraries timeout -k 5 15 "${tests[0]}" --gtest_filter='-*' 2>&1); then
  echo "gpu_check: no GPU can be used here: $(grep -m1 . <<<"$probe" || echo "the probe gave no answer in 15 s")" >&2
  exit 2
fi

mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
rm -rf "${out:?}"/{log.txt,result.json,steps.jsonl,rows.jsonl,gtest,benchmark,torch.json,dump}
mkdir -p "$out"/{gtest,benchmark,dump}
log=$out/log.txt
{ date -u +%FT%TZ && cat "$here/manifest.json" && grep '^On ' <<<"$probe" && nvidia-smi 2>&1; } >"$log"

passed=() failed=() absent=()

# record NAME STATUS SECONDS DETAIL: one line of the table, one of steps.jsonl. Neither NAME nor DETAIL has quotes.
record() {
  printf '%-44s %-9s %4d s  %s\n' "$1" "$2" "$3" "$4" | tee -a "$log"
  printf '{"step": "%s", "status": "%s", "seconds": %d, "detail": "%s"}\n' "$@" >>"$out/steps.jsonl"
  case $2 in
    passed) passed+=("$1") ;;
    failed) failed+=("$1") ;;
    *) absent+=("$1") ;;
  esac
}

# step NAME SECONDS COMMAND...: runs it, for so long at most. Its exit status 3 means: what it needs is not there.
step() {
  local name=$1 limit=$2 began=$SECONDS status from
  shift 2
  from=$(($(stat -c %s "$log") + 1))
  printf '\n=== %s: %s\n' "$name" "$*" >>"$log"
  timeout -k 5 "$limit" "$@" >>"$log" 2>&1
  status=$?
  # core/cuda's words where a program wants matrix products.
  ((status == 0)) || ! tail -c "+$from" "$log" | grep -q 'no cuBLAS (' || status=3
  case $status in
    0) record "$name" passed $((SECONDS - began)) "" ;;
    3) record "$name" absent $((SECONDS - began)) "see log.txt" ;;
    124 | 137) record "$name" failed $((SECONDS - began)) "not done after $limit s" ;;
    *) record "$name" failed $((SECONDS - began)) "exit status $status: see log.txt" ;;
  esac
}

# programs TOTAL: steps from here on take so many seconds together; program_limit says how many the next may: at most half.
programs() { total=$1 deadline=$((SECONDS + $1)); }
program_limit() {
  local left=$((deadline - SECONDS))
  ((left >= 10)) || left=10
  echo $((left < (total + 1) / 2 ? left : (total + 1) / 2))
}

# cuBLAS comes with a toolkit and with PyTorch, where the loader may not look.
if ! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.1[23] '; then
  for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 \
    $(python3 -c 'import glob, site; print(*[f for s in site.getsitepackages() for f in glob.glob(s + "/nvidia/c*/lib")])' 2>/dev/null); do
    [[ -e $folder/libcublas.so.13 || -e $folder/libcublas.so.12 ]] && libraries+=:$folder && break
  done
fi

# program_step NAME COMMAND...: a step of the programs' time.
program_step() { step "$1" "$(program_limit)" env LD_LIBRARY_PATH="$libraries" "${@:2}"; }

# Seconds for each kind of step, all its programs together.
if ((quick)); then
  test_limit=35 tools=(memcheck) sanitizer_limit=15 benchmark_limit=25 model_limit=10 import_limit=10
  torch_limit=20 torch_seconds=12 torch_bench_limit=15 torch_bench_seconds=8
  test_filter='-GpuLarge*:*EveryKindOfValue:*EveryHeadDim' flags=(--quick)
else
  test_limit=130 tools=(memcheck racecheck synccheck initcheck) sanitizer_limit=40 benchmark_limit=120 model_limit=60 import_limit=15
  torch_limit=80 torch_seconds=55 torch_bench_limit=150 torch_bench_seconds=120
  test_filter='*' flags=()
fi

programs $test_limit
for test in "${tests[@]}"; do
  name=${test##*/}
  program_step "$name" "$test" --gtest_filter="$test_filter" --gtest_output="json:$out/gtest/$name.json"
done

# It is not there where it cannot watch a program that launches nothing: some virtual GPUs do not let it.
why=""
if ! command -v compute-sanitizer >/dev/null; then
  why="no compute-sanitizer on PATH"
elif ! LD_LIBRARY_PATH=$libraries timeout -k 5 15 compute-sanitizer --error-exitcode 99 "${tests[0]}" --gtest_filter='-*' >>"$log" 2>&1; then
  why="compute-sanitizer does not work on this GPU: see log.txt"
fi
for tool in "${tools[@]}"; do
  [[ -z $why ]] || { record "$tool" absent 0 "$why" && continue; }
  programs $sanitizer_limit
  for test in "${tests[@]}"; do
    program_step "$tool ${test##*/}" compute-sanitizer --tool "$tool" --error-exitcode 99 "$test" \
      --gtest_filter='*ForSanitizers*'
  done
done

programs $benchmark_limit
for benchmark in "${benchmarks[@]}"; do
  name=${benchmark##*/}
  program_step "$name" "$benchmark" "${flags[@]}" --json "$out/benchmark/$name.json" --dump "$out/dump"
done

# model_step NAME ARGUMENT...: muse bench, its JSON lines beside PyTorch's.
programs $model_limit
muse=$here/models/model_muse_cuda
model_step() {
  # shellcheck disable=SC2016  # the inner shell expands it
  program_step "$1" bash -c '"$@" >>"$0"' "$out/rows.jsonl" "$muse" bench --device cuda --json "${@:2}"
}
if [[ -x $muse ]]; then
  model_step "muse_17m" --preset muse_17m --set training.compute_dtype=BF16 --units train --tokens 8192
  if ((!quick)); then
    model_step "muse_spark" --preset muse_spark --layers 4 --set model.ffn.moe.num_experts=8 --set model.vocab_size=16384 \
      --units train,prefill,decode --tokens 4096 --rows 16
  fi
fi

if timeout -k 5 "$import_limit" python3 -c 'import torch' 2>>"$log"; then
  step "PyTorch" "$torch_limit" python3 -B "$here/torch_compare.py" --dump "$out/dump" --json "$out/torch.json" \
    --seconds "$torch_seconds" "${flags[@]}"
  step "PyTorch's models" "$torch_bench_limit" python3 -B "$here/torch_bench.py" --rows "$out/rows.jsonl" \
    --seconds "$torch_bench_seconds" "${flags[@]}"
else
  record "PyTorch" absent 0 "python3 has no torch"
fi
rm -rf "$out/dump"

if command -v python3 >/dev/null; then
  python3 -B "$here/report.py" "$here/manifest.json" "$out" 2>&1 | tee -a "$log"
  ((PIPESTATUS[0] == 0)) || record "report" failed 0 "see log.txt"
else
  record "report" absent 0 "no python3: the pieces are steps.jsonl, rows.jsonl, gtest and benchmark"
  cat "$out"/benchmark/*.json
fi

join() {
  local IFS=,
  local joined=$*
  echo "${joined//,/, }"
}
summary="gpu_check: ${#passed[@]} passed, ${#failed[@]} failed, ${#absent[@]} not there"
((${#failed[@]})) && summary+="; failed: $(join "${failed[@]}")"
((${#absent[@]})) && summary+="; not there: $(join "${absent[@]}")"
echo "$summary" | tee -a "$log"
((${#failed[@]} == 0))
