#!/usr/bin/env bash
# What gpu_benchmark writes is what report.py and torch_compare.py read: the benchmark, on emulated kernels, then the report of
# it. Where PyTorch is there (CI has none), also that PyTorch's results on the CPU are as close as they should be, and that its
# optimizers and models run.
# Arguments: the benchmark of prepare_qkv, that of muon_step, the folder of the scripts.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "pipeline_test: $*" >&2 && exit 1; }

mkdir -p "$work"/{benchmark,dump}
echo '{}' >"$work/manifest.json"
"$1" --tiny --quick --json "$work/benchmark/bench.json" --dump "$work/dump"
"$2" --tiny --quick --json "$work/benchmark/muon.json" --dump "$work/dump"
python3 -B "$3/report.py" "$work/manifest.json" "$work" | tee "$work/table"
for layer in rope nope; do
  for pass in forward backward; do
    grep -qE "^$layer +train +$pass +65 \| +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9]+ \| +[0-9.]+ +[0-9.]+ \|" "$work/table" || fail "no row of $layer $pass"
  done
done
for row in '2 +64 +300 +fp32' '2 +64 +300 +bf16' '1 +80 +200 +fp32' '1 +80 +200 +bf16'; do
  grep -qE "^ *$row +\|( +[0-9.]+){4} +3$" "$work/table" || fail "no row of the Muon step, $row"
done
names='"(packed|q_weight|k_weight|positions|q|k|v|dq|dk|dv|dpacked|dq_weight_per_group|dk_weight_per_group)":'
for dump in {rope,nope}.{after_weight,only_at_end}; do
  [[ $(head -c 4096 "$work/dump/$dump.safetensors" | grep -aoE "$names" | sort -u | wc -l) == 13 ]] || fail "$dump lacks tensors"
done
if python3 -c 'import torch' 2>/dev/null; then
  python3 -B "$3/torch_compare.py" --dump "$work/dump" --device cpu || fail "PyTorch is too far away"
  python3 -B "$3/torch_bench.py" --tiny --device cpu --seconds 20 --rows "$work/rows.jsonl"
  python3 -B "$3/report.py" "$work/manifest.json" "$work" | tee "$work/table"
  grep -qE "^muon_step 3x4x8 +PyTorch batched +[0-9.]+ us" "$work/table" || fail "no row of PyTorch's Muon step"
  grep -qE "^train muse_spark, 4 layers, 32 tokens +PyTorch eager, AdamW +([0-9.]+ tokens/s|skipped: out of time)" "$work/table" ||
    fail "no row of PyTorch's training"
else
  echo "no PyTorch here: torch_compare.py and torch_bench.py were not run"
fi
