#!/usr/bin/env bash
# Checks that every given header compiles on its own, without a CUDA toolkit on the include path: it includes what it uses,
# and nothing that a CPU-only user lacks. Where foo.cc includes foo.h before anything else, the build has checked that
# already; the others are compiled here. Prints the compiler's messages and exits 1 if one does not compile.
#
#   tools/lint/check_headers.sh FILE...        FILEs from the repository's root; what is not a .h is left out
set -euo pipefail

generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT
mapfile -t protos < <(git ls-files '*.proto')
[[ ${#protos[@]} -eq 0 ]] || protoc --cpp_out="$generated" "${protos[@]}"

built_first() {
  local source=${1%.h}.cc
  [[ -e $source && $(grep -m1 '^#include' "$source") == "#include \"$1\"" ]]
}

compile() {
  echo "#include \"$1\"" | g++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-sign-compare \
    -Wno-uninitialized -Wno-maybe-uninitialized -march=native \
    -I. -I"$generated" -isystem /usr/include/eigen3 -x c++ -
}

status=0
for header in "$@"; do
  if [[ $header != *.h ]] || built_first "$header"; then continue; fi
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || status=1; done
  compile "$header" || { echo "$header: does not compile on its own"; false; } &
done
while (($(jobs -p | wc -l))); do wait -n || status=1; done
exit "$status"
