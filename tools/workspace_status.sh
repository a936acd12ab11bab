#!/usr/bin/env bash
# Tells Bazel the commit that a binary is built from (`muse --version`).
set -u
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null | head -1)" ] || commit="$commit, modified"
echo "STABLE_HEADWISE_COMMIT $commit"
