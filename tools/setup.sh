#!/usr/bin/env bash
# Installs what Headwise needs and is not there yet, and writes the default training text, data/kjv.txt.
#
#   tools/setup.sh              install (Debian and Ubuntu, with apt; sudo if you are not root), write the text
#   tools/setup.sh --with-mpi   also Open MPI, for several CPU processes
#   tools/setup.sh --check      change nothing; exit 1 and name what is missing
#
# Running it again is safe, and quiet when nothing is to do. A CUDA toolkit is found by the build itself, if there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian package, and where the build looks for what it installs.
readonly TABLE="
bazel-bootstrap        /usr/bin/bazel
bazel-platforms        /usr/share/bazel/tools/platforms
bazel-rules-java       /usr/share/bazel/rules/java
bazel-rules-proto      /usr/share/bazel/rules/proto
bazel-skylib           /usr/share/bazel/tools/skylib
bible-kjv              /usr/bin/bible
bible-kjv-text         /usr/lib/bible.data
clang-format           /usr/bin/clang-format
clang-tidy             /usr/bin/clang-tidy
g++                    /usr/bin/g++
git                    /usr/bin/git
libabsl-dev            /usr/include/absl/status
libbenchmark-dev       /usr/include/benchmark
libcli11-dev           /usr/include/CLI
libdnnl-dev            /usr/include/oneapi/dnnl
libeigen3-dev          /usr/include/eigen3/Eigen
libgmock-dev           /usr/include/gmock
libgtest-dev           /usr/include/gtest
libprotobuf-dev        /usr/include/google/protobuf
nlohmann-json3-dev     /usr/include/nlohmann
protobuf-compiler      /usr/bin/protoc
shellcheck             /usr/bin/shellcheck
"
# The King James Version as `bible` prints it: one verse a line, each with its place ("Ge1:1 In the beginning ...").
readonly TEXT=data/kjv.txt
readonly TEXT_BYTES=4404412

say() { echo "setup: $*"; }
die() {
  echo "setup: $*" >&2
  exit 1
}

# Prints those of the given Debian packages that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query --show --showformat '${binary:Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    sed -n 's/^\([^: ]*\)[^ ]* installed$/\1/p') || true
  printf '%s\n' "$@" | grep -Fvx -f <(echo "$installed") || true
}

# install PACKAGE...: with apt, after saying what it will cost.
install() {
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install $*"
    as_root=(sudo)
  fi
  say "installing with apt: $*"
  "${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the package lists that are here"
  local available unknown
  available=$(apt-cache policy "$@" | awk '/^[^ ]/ {name = $1} /Candidate: [^(]/ {sub(":$", "", name); print name}')
  mapfile -t unknown < <(printf '%s\n' "$@" | grep -Fvx -f <(echo "$available"))
  [[ ${#unknown[@]} -eq 0 ]] || die "apt does not know ${unknown[*]}. Debian 12 has them; on Ubuntu enable 'universe'."
  # apt's own account of it: "After this operation, 1234 MB of additional disk space will be used."
  local cost
  cost=$(LC_ALL=C apt-get install --no-install-recommends --assume-no "$@" 2>/dev/null |
    grep -E '^(Need to get|After this operation)' | tr '\n' ' ') || true
  say "${cost:-apt does not say how much disk that takes.}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 \
    --no-install-recommends "$@" >/dev/null || die "apt-get install failed; its messages are above."
  say "installed."
}

# Writes the training text, whole or not at all.
write_text() {
  say "writing $TEXT (4.4 MB), the default training text, from the package bible-kjv"
  command -v bible >/dev/null || die "no 'bible' command: install bible-kjv, or train with --set data.path=FILE"
  mkdir -p data
  local new
  new=$(mktemp "$TEXT.XXXXXX")
  # shellcheck disable=SC2064  # the name as it is now
  trap "rm -f '$new'" EXIT
  # cat, because it notices a full disk; bible does not look.
  bible -f Gen1:1-Rev22:21 | cat >"$new" || die "$TEXT was not written"
  [[ -s $new ]] || die "'bible' printed nothing; $TEXT was not written"
  sync "$new"
  chmod 644 "$new"
  mv "$new" "$TEXT"
  trap - EXIT
}

check_text() {
  local bytes
  bytes=$(stat --format=%s "$TEXT")
  if [[ $bytes -ne $TEXT_BYTES ]]; then
    say "warning: $TEXT has $bytes bytes, expected $TEXT_BYTES: another edition, or edited." \
      "Training works; its figures differ from the documented ones. Remove the file to have it written again." >&2
  fi
}

# Debian's Bazel answers no version, so it is known by the package that owns it.
check_bazel() {
  local found
  found=$(command -v bazel) || die "installed, but 'bazel' is not in PATH: use /usr/bin/bazel"
  if [[ $(readlink -f "$found") != /usr/bin/bazel ]]; then
    say "warning: 'bazel' is $found, not Debian's 4.2.3, the one that Headwise is tested with." \
      "Where the instructions say bazel, use /usr/bin/bazel." >&2
  fi
}

# headwise.bazelrc has flags that g++ 11 does not know.
check_compiler() {
  local version
  version=$(g++ -dumpversion 2>/dev/null) || version=unknown
  if [[ $version =~ ^[0-9]+ && ${BASH_REMATCH[0]} -lt 12 ]]; then
    die "g++ is version $version; Headwise needs 12 or newer (Debian 12, Ubuntu 24.04)"
  fi
}

# Without apt: names what to install, or nothing if all is where the build looks for it.
check_by_hand() {
  local package path found=1
  while read -r package path; do
    [[ -z $package || -e $path ]] && continue
    ((found)) && say "no apt on this system. Install by hand (Debian's name, and where the build looks for it):" >&2
    found=0
    printf '  %-20s %s\n' "$package" "$path" >&2
  done <<<"$TABLE"
  ((found)) || die "headwise_deps.bzl says how to give other places. To train on another text: --set data.path=FILE."
}

main() {
  local wanted missing check=0 argument
  mapfile -t wanted < <(awk 'NF {print $1}' <<<"$TABLE")
  for argument in "$@"; do
    case $argument in
      --with-mpi) wanted+=(libopenmpi-dev openmpi-bin) ;;
      --check) check=1 ;;
      --help | -h)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      *) die "unknown argument '$argument'; see tools/setup.sh --help" ;;
    esac
  done

  missing=()
  if [[ $(command -v apt-get) && $(command -v dpkg-query) ]]; then
    mapfile -t missing < <(missing_packages "${wanted[@]}")
  else
    check_by_hand
  fi
  if ((check)); then
    [[ ${#missing[@]} -eq 0 ]] || say "missing packages: ${missing[*]}"
    [[ -e $TEXT ]] || say "missing text: $TEXT"
    [[ ${#missing[@]} -eq 0 && -e $TEXT ]]
    exit
  fi
  [[ ${#missing[@]} -eq 0 ]] || install "${missing[@]}"
  [[ -e $TEXT ]] || write_text
  check_text
  check_compiler
  check_bazel
}

main "$@"
