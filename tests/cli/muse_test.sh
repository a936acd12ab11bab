#!/usr/bin/env bash
# The muse binary as a user meets it: what it prints, its exit codes, and that nothing is lost.
set -u

muse=$PWD/model/muse program=$muse
# shellcheck source=tests/cli/expect.sh
source tests/cli/expect.sh
config=$PWD/tests/cli/tiny.textproto
text=$PWD/LICENSE
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/muse.XXXXXX")
cd "$work" || exit 1

train() { "$muse" train --config "$config" --set data.path="$text" "$@" < /dev/null; }

# What works.
expect 0 '^muse 0\.' --version
expect 0 '^CUDA +built without$' --version
expect 0 'generate' --help
expect 0 'runs/NAME' train --help
expect 0 'training.steps +\(int64\)' train --help-config
expect 0 'muse_17m' info
expect 0 '17,177,088' info muse_17m
expect 0 'vocab_size: 256' info muse_demo --print-config
expect 0 'steps: 5' train --config "$config" --set data.path="$text" --steps 5 --print-config
expect 0 'nothing was trained' train --config "$config" --set data.path="$text" --dry-run
check 'a dry run leaves nothing' test ! -e runs
expect 0 'done after step 8' train --config "$config" --set data.path="$text" --run whole
for file in metrics.jsonl loss.svg run.textproto step-8/model.safetensors step-8/optimizer.safetensors; do
  check 'a run leaves its files' test -s "whole/$file"
done
expect 0 'step 8' info whole
# What was printed is read, and says the same.
"$muse" info muse_demo --print-config > printed.textproto
expect 0 'nothing was trained' train --config printed.textproto --set data.path="$text" --dry-run
expect 0 'RoPE' info printed.textproto
"$muse" info printed.textproto --print-config > again.textproto
check 'the same configuration' cmp printed.textproto again.textproto
expect 0 'nothing was trained' train --config whole/run.textproto --dry-run
expect 0 '^decode ' bench --config whole/run.textproto --units decode --tokens 16 --rounds 1
# To be run, or started from, a checkpoint needs its weights only.
cp -r whole weights
rm weights/step-*/optimizer.safetensors
expect 0 'tokens/s' generate --run weights --max-tokens 3
expect 0 'perplexity' eval --run weights/step-8 --text "$text"
expect 0 '^  steps: 8$' train --init weights --print-config
expect 3 'step-8/optimizer.safetensors: expected a file of [0-9]+ bytes, found none' train --run weights --steps 9
expect 0 'tokens/s' generate --run whole --prompt 'the ' --max-tokens 20 --temperature 0
expect 0 'tokens/s' generate --run whole/step-8 --max-tokens 3 --stop zzz
expect 0 'done after step 8' train --config "$config" --set data.path="$text"
check 'runs go to ./runs' test -d runs/tiny/step-8
expect 0 'runs/tiny, step 8|runs/tiny/step-8, step 8' generate --max-tokens 1
expect 0 'done after step 2' train --config "$config" --set data.path="$text" --steps 2 --run again --init whole
expect 2 'packing: expected INTERLEAVED_PER_KV_GROUP, as in whole/step-8, found SECTIONED; try --set' train --config "$config" \
  --set model.attention.packing=SECTIONED --set data.path="$text" --steps 2 --run sections --init whole
one=$("$muse" generate --run whole --max-tokens 30 --seed 4 2> /dev/null)
two=$("$muse" generate --run whole --max-tokens 30 --seed 4 --threads 1 2> /dev/null)
check 'same seed, same text' test "$one" = "$two"

# A run that is stopped and resumed ends with the bytes of one that was not.
"$muse" train --config "$config" --set data.path="$text" --run stopped --steps 100000 > log 2>&1 < /dev/null &
pid=$!
for _ in $(seq 600); do grep -q 'step 1/' log && break; sleep 0.1; done
kill -TERM "$pid"
wait "$pid"
check 'a stop signal ends with 0' test $? = 0
check 'the stop is announced' grep -q 'to go on    muse train --run stopped' log
step=$(sed -n 's/^stopped after step \([0-9]*\).*/\1/p' log)
check 'the stop names its step' test -n "$step"
expect 0 'resumed     stopped/step' train --run stopped --steps "$((step + 8))"
check 'the whole run of the same length' train --run reference --steps "$((step + 8))" > /dev/null 2>&1
check 'equal weights' cmp "stopped/step-$((step + 8))/model.safetensors" "reference/step-$((step + 8))/model.safetensors"
check 'metrics without gap or double' test "$(wc -l < stopped/metrics.jsonl)" = "$((step + 8))"
expect 0 'nothing left to do' train --run whole
expect 0 'to go on    muse generate --run whole, or muse train --run whole --steps 16$' train --run whole
expect 0 'muse train --run whole --steps 16 --device cuda-emulated$' train --run whole --device cuda-emulated
expect 0 'device      cpu, .*; MFU against a measured fp32 matrix product of [0-9.]+G FLOP/s' train --run again --steps 3
emulated=$(train --run emulated --steps 1 --set training.sample_tokens=0 --device cuda-emulated 2>&1)
check 'emulated kernels train' grep -q 'done after step 1' <<< "$emulated"
check 'the run goes on in the emulation' grep -q 'to go on    muse generate --run emulated --device cuda-emulated, or muse train --run emulated --steps 2 --device cuda-emulated$' <<< "$emulated"
check 'an emulation has no MFU' test "$(grep -c 'MFU' <<< "$emulated"):$(grep -c 'MFU n/a' <<< "$emulated")" = 2:2

# Muon on tensor cores: in the emulation, and from there in contract mode on the CPU.
mode=optimizer.muon.compute_mode
expect 0 "changed     $mode: CONTRACT_FP32 -> TENSOR_CORE" train --run emulated --steps 2 --set "$mode=TENSOR_CORE" --device cuda-emulated
expect 2 "error: $mode must be CONTRACT_FP32 on the CPU, found TENSOR_CORE; try .*--device cuda or cuda-emulated\), or .*--set $mode=CONTRACT_FP32\), with which a run's checkpoints go on$" train --run emulated --steps 3
expect 0 "changed     $mode: TENSOR_CORE -> CONTRACT_FP32" train --run emulated --steps 3 --set "$mode=CONTRACT_FP32"
expect 2 "error: $mode must be CONTRACT_FP32 on the CPU" train --config "$config" --set data.path="$text" --set "$mode=TENSOR_CORE" --dry-run
expect 0 'muon.compute_mode=TENSOR_CORE' train --config "$config" --set data.path="$text" --set "$mode=TENSOR_CORE" --device cuda-emulated --dry-run
for units in train kernels,decode; do
  expect 2 "error: $mode must be CONTRACT_FP32 on the CPU .*--units prefill,decode" bench --config "$config" --set "$mode=TENSOR_CORE" --units "$units"
done
expect 0 '^decode ' bench --config "$config" --set "$mode=TENSOR_CORE" --units prefill,decode --tokens 16 --rounds 1

# Ranks in threads. Data parallelism changes no bit; another layout may take over.
four=(--config "$config" --set data.path="$text" --set training.micro_batches=4)
expect 0 'done after step 8' train "${four[@]}" --run alone
expect 0 'layout      dp=2: forward, backward and gradients are right' train "${four[@]}" --mesh dp=2 --ranks threads --run twins
check 'equal weights on two ranks' cmp alone/step-8/model.safetensors twins/step-8/model.safetensors
check 'equal optimizer states on two ranks' cmp alone/step-8/optimizer.safetensors twins/step-8/optimizer.safetensors
expect 0 'done after step 10' train --run twins --mesh dp=2,tp=2 --sp --steps 10
expect 0 'a rank sends .* and its gradients' train "${four[@]}" --mesh cp=2,tp=2 --dry-run
expect 2 'error: --mesh: .*tq=2' train "${four[@]}" --mesh tq=2
expect 2 "error: $mode must be CONTRACT_FP32 on several ranks, .*one rank \\(no --mesh\\) .*--device cuda or cuda-emulated" train "${four[@]}" --mesh dp=2 --set "$mode=TENSOR_CORE" --device cuda-emulated
expect 2 'error: mesh: dp=8 ranks share out training.micro_batches, found 4; .*try a dp that is a power of two and divides training.batch_size = 4' train "${four[@]}" --mesh dp=8
expect 2 'try --set training.micro_batches=4 in a new run, or a dp that divides 2' train --config "$config" --set data.path="$text" --mesh dp=4
expect 3 'error: --mesh cp=1024: 1024 ranks as threads need at least .* together; expected at most' train --preset llama3_tiny --set data.path="$text" --set training.sequence_length=1024 --mesh cp=1024 --dry-run
expect 2 "error: --ranks: expected threads, found 'thread'; did you mean 'threads'" train "${four[@]}" --mesh dp=2 --ranks thread

# Benchmarks: what is printed, not how long it took.
quick=(bench --config "$config" --tokens 16 --rounds 1)
expect 0 'train +16 .*unfused / fused [0-9.]+' "${quick[@]}" --units train
expect 0 '^\{"name":"decode/fused/time","unit":"ms","value":[0-9.e-]+,.*"tokens":16,"rows":3,"preset":".*tiny.textproto","layers":1,' "${quick[@]}" --units decode --rows 3 --layers 1 --json
expect 0 '^prepare_qkv.backward ' "${quick[@]}" --units kernels
check 'nothing but JSON on standard output' test "$("$muse" "${quick[@]}" --units prefill --json 2> /dev/null | grep -cv '^{.*}$')" = 0
expect 2 "preset 'muse_spak' does not exist; did you mean 'muse_spark'" bench --preset muse_spak
expect 2 "error: --tokens: expected numbers from 1 .*found 'many'" bench --tokens 16,many
expect 2 'error: --tokens: found 257, expected at most model.max_sequence_length = 256' bench --config "$config" --tokens 257
expect 2 "did you mean 'train'" bench --units trian
expect 3 'error: memory: muse_spark of 4 layers .* needs [0-9.]+ TiB on cpu.*expected at most' bench --preset muse_spark --layers 4
expect 2 'expected cpu or cuda, .*says nothing about a GPU' bench --device cuda-emulated
expect 2 "error: --device: expected cpu or cuda, found 'gpu'; did you mean 'cuda'\?$" bench --device gpu
expect 2 "error: --device: expected cpu or cuda, found 'cuda-emulatd'$" bench --device cuda-emulatd
for command in bench generate eval; do
  expect 4 'built without CUDA; try bazel run //model:muse_cuda' "$command" --device cuda
done

# What does not: one line, the right code.
expect 2 "error: .*did you mean '--steps'" train --stesp 4
expect 2 "error: unknown command 'trian'; did you mean 'train'" trian
expect 2 'error: ' train --steps many
expect 2 "unknown field 'stepz' in training; did you mean 'steps'" train --set training.stepz=4
expect 2 "muse_demo" train --preset muse_dmeo
expect 2 'num_kv_heads' train --config "$config" --set data.path="$text" --set model.attention.num_kv_heads=3
expect 2 'expected one of them' train --preset muse_demo --config "$config"
expect 2 "expected cpu, cuda or cuda-emulated, found 'gpu'; did you mean 'cuda'\?$" train --device gpu
expect 4 'built without CUDA; try bazel run //model:muse_cuda' train --device cuda
expect 2 'error: --mesh dp=2: ranks run on CPUs, found --device cuda' train "${four[@]}" --mesh dp=2 --device cuda
expect 2 'expected cpu, cuda or cuda-emulated' train --device cuda-emulatd
expect 3 'missing.txt' train --config "$config" --set data.path=missing.txt
: > empty.txt
expect 3 'empty' train --config "$config" --set data.path=empty.txt
printf 'too short' > short.txt
expect 3 'each split needs at least' train --config "$config" --set data.path=short.txt
expect 3 'vocab' train --config "$config" --set data.path="$text" --set model.vocab_size=100
expect 3 'missing.textproto' train --config missing.textproto
printf 'training {\n  stepz: 3\n}\n' > wrong.textproto
expect 2 "wrong.textproto:2:.*did you mean 'steps'" train --config wrong.textproto
expect 2 'cannot resume with another optimizer.muon.learning_rate' train --run whole --steps 20 --set optimizer.muon.learning_rate=0.5
expect 3 'no such directory|neither' generate --run nowhere
expect 2 'top-p' generate --run whole --top-p 0
expect 2 'do not fit' generate --run whole --max-tokens 100000
cp -r whole broken
truncate -s -5 broken/step-8/model.safetensors
expect 0 'warning: skipped broken/step-8.*expected [0-9]+ bytes, found' generate --run broken --max-tokens 1
expect 3 'expected [0-9]+ bytes, found' generate --run broken/step-8
rm broken/step-4/state.textproto
expect 3 'none of its' train --run broken --steps 20
check 'a broken checkpoint is left as it was' test -s broken/step-8/model.safetensors

# What a careless shell does.
expect 2 'expected one of them, found both' train --steps 4 --set training.steps=5
expect 2 'expected a value, found none' train --run ''
expect 2 "unknown flag '--nope'" --nope
expect 3 'cannot read .*directory' train --config "$work"
expect 3 'expected a regular file' train --config "$config" --set data.path=/dev/zero
expect 3 'missing.txt' train --config "$config" --set data.path=missing.txt --dry-run
expect 2 'model.name' train --config "$config" --set data.path="$text" --set model.name=../../x
expect 3 'this model.s weights, gradients and optimizer state need' train --config "$config" --set data.path="$text" --set model.dim=2000000 --set model.ffn.hidden_dim=2000000
expect 3 'is another text' train --run whole --steps 20 --set data.path="$config"
expect 2 'Value 0 not in range 1 to 1024' generate --run whole --threads 0
rm -rf litter && cp -r whole litter && rm -r litter/step-*
expect 3 'holds run.textproto of another run' train --config "$config" --set data.path="$text" --run litter
check 'the other run is as it was' cmp litter/metrics.jsonl whole/metrics.jsonl
"$muse" train --config "$config" --set data.path="$text" --run closed >&- 2>&- <&-
check 'closed streams do not leak into files' test "$(head -c 1 closed/metrics.jsonl)" = '{'
check 'nor stop a run' test -s closed/step-8/model.safetensors
(trap '' PIPE; "$muse" info > /dev/full 2> full.err)
check 'a full standard output is an error' test $? = 3
# Whoever read the output has gone: the training stops and saves.
"$muse" train --config "$config" --set data.path="$text" --run piped --steps 100000 2> /dev/null < /dev/null | head -60 > /dev/null
check 'a closed pipe saves the run' test -n "$(find piped -name model.safetensors)"

finish
