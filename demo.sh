#!/bin/sh
# The main job in one go, in a throwaway clone: an edit is committed through the real hook, the
# index follows in the same commit, and a query answers with a section-cited hit.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PRE_COMMIT_HOME="$scratch/pre-commit"

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }
run() { say "$@"; "$@"; }

git clone --quiet "$here" "$scratch/clone"
cd "$scratch/clone"
git config user.name "kbindex demo"
git config user.email "demo@example.invalid"

run kbindex query "why is a document's second half never invisible?" -k 3

printf '\nThe spare key to the demo room hangs behind the green fire extinguisher.\n' \
  >> bundle/troubleshooting/queries.md
say "echo 'The spare key …' >> bundle/troubleshooting/queries.md"
git config core.hooksPath hooks
run git commit --quiet --all --message "Say where the spare key is"
run git show --stat --format=%s HEAD
run kbindex query "where can I find the door key?" -k 1
run kbindex get troubleshooting/queries --lines "$(kbindex query 'where can I find the door key?' \
  -k 1 --format json | python3 -c 'import json,sys; a,b=json.load(sys.stdin)["hits"][0]["lines"]; print(f"{a}:{b}")')"
run kbindex check
