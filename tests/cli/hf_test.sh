#!/usr/bin/env bash
# Hugging Face folders as a user meets them: convert, eval, generate, train --init.
set -u

muse=$PWD/model/muse program=$muse
# shellcheck source=tests/cli/expect.sh
source tests/cli/expect.sh
golden=$PWD/tests/golden/data
text=$PWD/LICENSE
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/hf.XXXXXX")
cd "$work" || exit 1

# There and back.
expect 0 'native: checkpoint of model_type llama: 45 tensors' convert --from "$golden/llama3" --to native
expect 0 'folder of model_type llama: 57 tensors, .* in 1 file' convert --from native --to again
check 'the same weights' cmp again/model.safetensors "$golden/llama3/model.safetensors"
check 'the same configuration' cmp again/config.json "$golden/llama3/config.json"
expect 0 'in [3-9] files' convert --from native --to sharded --max-shard-size 200KB
expect 0 'carried through, not run: [0-9]+ tensors .model.vision_adapter.fc1.weight' convert --from "$golden/muse_glimmer" --to muse
expect 3 'again: is there already' convert --from native --to again
expect 2 'native is native already; expected hf' convert --from native --to x --format native
expect 2 "did you mean 'native'" convert --from native --to x --format natve
expect 2 '.--max-shard-size: expected a size' convert --from native --to x --max-shard-size 5gb
expect 2 '.--from: expected a directory' convert --to x
expect 3 'nowhere: expected a run directory' convert --from nowhere --to x
check 'what failed left nothing' test ! -e x

# Both forms are one model: the same loss, the same ids.
printf '\5\0\7\0\13\0\21\0\3\0\1\0\30\0\77\0\4\0\5\0' > tokens
for model in "--hf $golden/llama3" '--run native'; do
  # shellcheck disable=SC2086
  expect 0 'perplexity  [0-9]' eval $model --text tokens --format UINT16
  # shellcheck disable=SC2086
  "$muse" eval $model --text tokens --format UINT16 2> /dev/null | grep -v 'model\|speed' >> losses
  # shellcheck disable=SC2086
  "$muse" generate $model --prompt-ids 5,7,11 --max-tokens 5 --temperature 0 2> /dev/null >> ids
done
check 'losses' test "$(sort losses | uniq -c | awk '{print $1}' | sort -u)" = 2
check 'ids' test "$(uniq -c ids | awk '{print $1, NF}')" = '2 9'
expect 0 '10 tokens, 9 predicted, in windows of 4' eval --hf "$golden/llama3" --text tokens --format UINT16 --sequence 4
expect 0 'logits      l.safetensors: of the first 4 tokens' eval --hf "$golden/llama3" --text tokens --format UINT16 --sequence 4 --logits l.safetensors
check 'logits' grep -aq '"logits.0":{"dtype":"F32","shape":\[4,160\]' l.safetensors
expect 3 'logits: expected a new file, found tokens' eval --hf "$golden/llama3" --text tokens --format UINT16 --logits tokens
expect 3 'a Hugging Face folder; try --init' train --run "$golden/llama3" --steps 1
expect 3 'logits: expected a directory at no, found none' eval --hf "$golden/llama3" --text tokens --format UINT16 --logits no/l
expect 0 'prompt and output are token ids' generate --hf "$golden/llama3" --prompt '1 2' --max-tokens 1
expect 2 'expected one of them, found both' generate --hf "$golden/llama3" --run native
expect 3 'a Hugging Face folder; try --hf' generate --run "$golden/llama3"
expect 2 'expected one of them, found none' eval --text tokens
expect 3 'token [0-9]+ at position 0' eval --hf "$golden/llama3" --text "$text" --format UINT16
expect 2 'BYTES' eval --hf "$golden/llama3" --text tokens --format words
expect 2 '.--sequence: expected at most' eval --hf "$golden/llama3" --text tokens --sequence 9999
expect 0 'model_type llama' info "$golden/llama3"

# Training from one. A byte is a token below 160 if the text is ASCII.
start=(train --init "$golden/llama3" --set data.path="$text" --set data.format=BYTES --set training.batch_size=2 --steps 2)
start+=(--set training.sequence_length=64 --set training.sample_tokens=8)
expect 0 'weights of  .*llama3, model_type llama' "${start[@]}" --run tuned
expect 0 '^65 66 [0-9]+ [0-9]+' generate --run tuned --prompt-ids 65,66 --max-tokens 2
expect 0 'folder of model_type llama' convert --from tuned --to tuned-hf
expect 0 'perplexity' eval --hf tuned-hf --text "$text" --format BYTES --sequence 64
expect 2 'differ in model.attention' "${start[@]}" --run other --preset muse_demo

finish
