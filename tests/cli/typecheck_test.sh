#!/usr/bin/env bash
# typecheck as a user meets it: what it prints and its exit codes.
set -u

typecheck=$PWD/tools/typecheck/typecheck program=$PWD/tools/typecheck/typecheck
golden=$PWD/tests/golden/data tiny=$PWD/tests/cli/tiny.textproto
# shellcheck source=tests/cli/expect.sh
source tests/cli/expect.sh
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/typecheck.XXXXXX")
cd "$work" || exit 1

spark=(--preset muse_spark_tiny --length 64)
expect 0 '^accepted$' "${spark[@]}"
expect 0 'ranks +8: dp=2 cp=2 tp=2; for experts edp=2 ep=4' "${spark[@]}" --mesh dp=2,cp=2,tp=2,ep=4 --sp
expect 0 'activations F32' "${spark[@]}" --compute fp32
expect 0 'shared out to 2 ranks' "${spark[@]}" --mesh tp=2 --explain
expect 0 '"accepted": true' "${spark[@]}" --mesh tp=2 --json
expect 0 'accepted' --config "$tiny" --mesh tp=2
expect 0 'accepted' --hf "$golden/qwen3_moe" --mesh dp=2,tp=2,ep=4
expect 0 'model +muse_spark_tiny, 2 layers' "${spark[@]}" --set model.num_layers=2
expect 0 '816|819,990,552,064 parameters' --preset muse_spark --mesh dp=64,cp=4,tp=16,ep=256
expect 0 'for machines|For machines' --help

# The layout is wrong.
broken=("${spark[@]}" --mesh tp=2 --edit 'forward layers.*.attention.in:')
expect 1 'where +layers.0.attention$' "${broken[@]}"
expect 1 "--edit 'forward layers.\*.attention.in: convert\(F32\)@tp -> R'" "${broken[@]}"
expect 1 '"accepted": false' "${broken[@]}" --json
expect 1 '5 mistakes' "${spark[@]}" --mesh dp=2,tp=2 --keep-going --edit 'reduction layers.*.attention.wqkv:' --edit 'reduction head.weight:'
expect 1 'tp=3 shares out neither' "${spark[@]}" --mesh tp=3
expect 1 'tp=3 shares out neither' "${spark[@]}" --mesh tp=3 --print-plan
expect 1 '    --length 66$' --preset muse_spark_tiny --mesh tp=2 --sp --length 65
expect 1 'picture.svg: not drawn: the layout is wrong' "${broken[@]}" --svg picture.svg
check 'nothing is drawn of a wrong layout' [ ! -e picture.svg ]

# The plan that is printed is the plan that is read.
"$typecheck" "${spark[@]}" --mesh dp=2,tp=2 --sp --print-plan > plan.txt
check 'a plan is printed' grep -q '^leaf layers.\*.attention.wqkv: S(0)@tp$' plan.txt
expect 0 'plan +from a file' "${spark[@]}" --mesh dp=2,tp=2 --plan plan.txt
"$typecheck" "${spark[@]}" --mesh dp=2,tp=2 --plan plan.txt --print-plan > again.txt
check 'it comes back' cmp plan.txt again.txt
expect 1 'where +head' "${spark[@]}" --mesh dp=2,tp=2 --plan /dev/null
expect 0 'accepted' "${spark[@]}" --mesh dp=2,tp=2 --svg picture.svg --layer 3
check 'a picture is drawn' grep -q '<title>Layer 3 over dp=2,tp=2</title>' picture.svg

# What does not read.
printf 'leaf head.weight: S(0)@tp\nforward\n' > bad.txt
expect 2 'error: bad.txt: line 2: plan entry' "${spark[@]}" --plan bad.txt
expect 2 'error: --edit: plan entry .nonsense.' "${spark[@]}" --edit nonsense
expect 2 "error: --edit .*no boundary of this name.*did you mean 'layers.\*.attention.in'" "${spark[@]}" --edit 'forward layers.*.attention.inn:'
expect 2 'error: mesh .tp=x.: .tp=x. must be' "${spark[@]}" --mesh tp=x
expect 2 'error: mesh: ep=3 does not divide the 2 ranks' "${spark[@]}" --mesh tp=2,ep=3
expect 2 'error: --preset, --config and --hf: expected one of them, found 0' --mesh tp=2
expect 2 'error: --preset, --config and --hf: expected one of them, found 2' --preset muse_demo --config "$tiny"
expect 2 "error: .*did you mean 'muse_spark'" --preset muse_sparc
expect 2 'error: cannot open nothing' --config nothing
expect 2 'error: cannot open nothing' "${spark[@]}" --plan nothing
expect 2 'error: --compute: found .fp8., expected fp32 or bf16' "${spark[@]}" --compute fp8
expect 2 'error: --length: found 0, expected 1 to' --preset muse_spark_tiny --length 0
expect 2 'error: --sequences: found 0' "${spark[@]}" --sequences 0
expect 2 'error: --layer: found 4, expected 0 to 3' "${spark[@]}" --layer 4
expect 2 'error: .*--mehs.*did you mean .--mesh' "${spark[@]}" --mehs tp=2
expect 2 'error: .*picture.svg' "${spark[@]}" --svg no/such/directory/picture.svg
mkdir llama
printf '{' > llama/config.json
expect 2 'error: llama/config.json: .*not valid JSON' --hf llama

if [ -e /dev/full ]; then
  "$typecheck" "${spark[@]}" > /dev/full 2> full.txt
  check 'a full disk is named' grep -q 'cannot write all of it' full.txt
fi

finish
