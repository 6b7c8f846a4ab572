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

run kbindex query "what happens to text beyond the embedder's limit?" -k 3

document=bundle/troubleshooting/queries.md
say "add a section to $document"
cat >> "$document" <<'END'

## The demo room is locked

The spare key of the demo room hangs behind the green fire extinguisher on the second floor.
END
tail -n 3 "$document"

git config core.hooksPath hooks
run git commit --quiet --all --message "Say where the spare key is"
run git show --stat --format=%s HEAD
run kbindex query "where is the key of the demo room?" -k 1
run kbindex get "troubleshooting/queries#the-demo-room-is-locked"
run kbindex check
