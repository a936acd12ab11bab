#!/usr/bin/env bash
# Packs all tests and benchmarks that need a GPU, run.sh and PyTorch's side into one archive for a machine with a GPU, where there
# need be no Bazel, no toolkit and no network.
#
#   tools/gpu_check/pack.sh [ARCHIVE]       default: gpu_check.tar.xz
#   tar xJf gpu_check.tar.xz && gpu_check/run.sh       without xz: python3 -m tarfile -e gpu_check.tar.xz
#
# The programs run on any x86-64 CPU with AVX2 and need nothing but glibc, libstdc++ and the GPU's driver, which is checked; a few
# libraries are packed beside them. Those with matrix products on the GPU open cuBLAS, which is half a gigabyte: run.sh looks for it.
# //model:muse_cuda is packed where there is such a target. BAZEL names the command; GPU_ARCHS=sm_90a the GPUs, if not all that
# //third_party/cuda:archs lists.
set -euo pipefail
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    -*) echo "pack: unknown argument '$argument'; see tools/gpu_check/pack.sh --help" >&2 && exit 2 ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra bazel <<<"${BAZEL:-bazel}"
readonly CONFIG=(--config=bundle ${GPU_ARCHS:+"--//third_party/cuda:archs=$GPU_ARCHS"})
readonly MOST_BYTES=$((60 * 1024 * 1024))
# What is packed, in lib.
readonly PACKED='libdnnl|libgomp|libOpenCL|libprotobuf|libz'
# What a program may load besides. CUDA's driver, libcuda.so.1, is opened at run time.
readonly LIBRARIES='linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s'

archive=$(realpath -m "${1:-gpu_check.tar.xz}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/gpu_check
mkdir -p "$bundle"/{tests,benchmarks,models,lib}

# labels ARRAY EXPRESSION: sets ARRAY to what the query finds.
labels() {
  "${bazel[@]}" query --noshow_progress "$2" >"$work/labels" || { echo "pack: bazel query failed" >&2 && exit 1; }
  mapfile -t "$1" <"$work/labels"
}
tests=() benchmarks=() models=()
labels tests "attr(tags, '\\brequires-gpu\\b', tests(//...))"
labels benchmarks "attr(tags, '\\brequires-gpu\\b', kind(cc_binary, //...))"
labels models 'filter("^//model:muse_cuda$", kind(cc_binary, //model:*))'
((${#tests[@]} && ${#benchmarks[@]})) || { echo "pack: found no test or no benchmark that needs a GPU" >&2 && exit 1; }

"${bazel[@]}" build "${CONFIG[@]}" "${tests[@]}" "${benchmarks[@]}" "${models[@]}"
bin=$("${bazel[@]}" info "${CONFIG[@]}" bazel-bin 2>/dev/null)

# add FOLDER LABEL: //a/b:c becomes FOLDER/a_b_c.
add() {
  local path=${2#//} program others
  path=${path/://}
  program=$bundle/$1/${path//\//_}
  cp "$bin/$path" "$program"
  chmod 755 "$program"
  others=$(ldd "$program" | awk '{print $1}' | grep -vE "^(/lib64/)?($LIBRARIES|$PACKED)\.so" || true)
  [[ -z $others ]] || { echo "pack: $2 needs $others, which a GPU machine need not have" >&2 && exit 1; }
  ldd "$program" | awk -v packed="/($PACKED)[.]so" '$3 ~ packed {print $3}' | xargs -r cp -Lu -t "$bundle/lib"
}
for label in "${tests[@]}"; do add tests "$label"; done
for label in "${benchmarks[@]}"; do add benchmarks "$label"; done
for label in "${models[@]}"; do add models "$label"; done

glibc=$(objdump -T "$bundle"/*/* | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
printf '{"commit": "%s", "needs": "%s", "packed": "%s"}\n' "$commit" "${glibc/_/ }" "$(date -u +%FT%TZ)" >"$bundle/manifest.json"
cp tools/gpu_check/{run.sh,report.py,torch_compare.py,torch_bench.py,torch_models.py,model_shapes.py} "$bundle"

# Most programs hold the same kernels: a dictionary of their size stores them once.
tar -C "$work" --owner=0 --group=0 -cf - gpu_check | xz --lzma2=preset=1,dict=256MiB >"$work/archive"
bytes=$(stat -c %s "$work/archive")
((bytes <= MOST_BYTES)) || { echo "pack: the archive has $bytes bytes, expected at most $MOST_BYTES" >&2 && exit 1; }
mv "$work/archive" "$archive"
echo "pack: $archive, $((bytes / 1024 / 1024)) MiB: ${#tests[@]} test programs, ${#benchmarks[@]} benchmarks; needs ${glibc/_/ }"
