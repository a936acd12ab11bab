#!/usr/bin/env bash
# head_blocks as a user meets it: what it prints and its exit codes.
set -u

head_blocks=$PWD/tools/head_blocks/head_blocks program=$PWD/tools/head_blocks/head_blocks
# shellcheck source=tests/cli/expect.sh
source tests/cli/expect.sh
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/head_blocks.XXXXXX")
cd "$work" || exit 1

# safetensors FILE 'HEADER' BYTES: a file with this header and so many bytes of nothing.
safetensors() {
  local size=${#2}
  printf '%b' "\\x$(printf %02x $((size % 256)))\\x$(printf %02x $((size / 256)))\\0\\0\\0\\0\\0\\0" > "$1"
  printf %s "$2" >> "$1"
  truncate -s +"$3" "$1"
}

mkdir llama other
printf '{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2}' > llama/config.json
weights='{"model.layers.0.self_attn.q_proj.weight":{"dtype":"BF16","shape":[8,8],"data_offsets":[0,128]},'
weights+='"model.layers.0.self_attn.k_proj.weight":{"dtype":"BF16","shape":[4,8],"data_offsets":[128,192]}}'
safetensors llama/model.safetensors "$weights" 192
cp llama/model.safetensors other/
printf '{"model_type": "surely_new"}' > other/config.json

expect 0 'separate +4  4 query' --weights llama
expect 0 '2 of 2 weights, 6 heads, 6 blocks' --weights llama/model.safetensors --config llama/config.json
expect 0 '6 heads, 4 blocks at granularity kv_group' --weights llama --granularity kv_group
expect 0 '"model_type": "llama"' --weights llama --json
expect 0 'QQQQ  query 0-3' --weights llama --explain model.layers.0.self_attn.q_proj.weight
expect 0 'unknown_architecture: no rule for model_type .surely_new.' --weights other
expect 0 '0 of 2 weights' --weights other --granularity whole_matrix
expect 3 'error: granularity head was asked for, but none of the 2 weights' --weights other --granularity head
expect 3 'error: --explain: no weight .model.layers.0.self_attn.q_pro.*did you mean' --weights llama --explain model.layers.0.self_attn.q_pro
expect 3 'error: --explain: no weight' --weights llama --json --explain model.layers.0.self_attn.q_pro
expect 2 'At Most 1 required but received 2; see --help' --weights llama --weights other
expect 3 'error: nothing: no such file or directory' --weights nothing
expect 2 'error: --granularity: expected whole_matrix' --weights llama --granularity heads
expect 2 'error: --weights: expected a file or directory' --json
expect 2 'error: .*--wieghts.*did you mean .--weights' --wieghts llama
expect 0 'Headwise run or checkpoint' --help
printf '{' > other/config.json
expect 3 'error: other/config.json: .*not valid JSON' --weights other
truncate -s -1 llama/model.safetensors
expect 3 'error: llama/model.safetensors: .*truncated' --weights llama

if [ -e /dev/full ]; then
  "$head_blocks" --weights other --config llama/config.json > /dev/full 2> full.txt
  check 'a full disk is named' grep -q 'cannot write all of it' full.txt
fi

finish
