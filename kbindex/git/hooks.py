"""The texts of git's hooks and of the pre-commit framework's configuration."""

from __future__ import annotations

PRE_COMMIT_CONFIG = ".pre-commit-config.yaml"
HOOK_TYPES = ("pre-commit", "pre-merge-commit", "post-commit", "pre-push")
SHIM_MARK = "# kbindex hook"
KEPT_SUFFIX = ".before-kbindex"
_REQUIRE_PROGRAM = """\
if ! command -v kbindex >/dev/null; then
  echo "kbindex is not on PATH: activate its environment, or go without it by --no-verify" >&2
  exit 1
fi
"""


def framework_entry(indent: str = "  ") -> str:
    """Return the entry of ``.pre-commit-config.yaml`` that runs our hooks."""
    lines = ["- repo: local", "  hooks:"]
    for stage in HOOK_TYPES:
        lines += [
            f"    - id: kbindex-{stage}",
            f"      name: kbindex {stage}",
            f"      entry: kbindex hook {stage}",
            "      language: system",
            f"      stages: [{stage}]",
            "      always_run: true",
            "      pass_filenames: false",
        ]
    return "".join(f"{indent}{line}\n" for line in lines)


def shim(name: str) -> str:
    """Return the shell script that git runs as the hook ``name``."""
    head = f"#!/bin/sh\n{SHIM_MARK}: {name}. A hook that was here before runs first.\n"
    head += f'before="$0{KEPT_SUFFIX}"\n{_REQUIRE_PROGRAM}'
    if name == "pre-push":  # git tells what is pushed on stdin, and both want to read it
        return head + (
            "pushed=$(cat)\n"
            'if [ -x "$before" ]; then printf \'%s\\n\' "$pushed" | "$before" "$@" || exit $?; fi\n'
            f'printf \'%s\\n\' "$pushed" | kbindex hook {name} "$@"\n'
        )
    return head + (
        f'if [ -x "$before" ]; then "$before" "$@" || exit $?; fi\nexec kbindex hook {name} "$@"\n'
    )


def calls_us(hook: str, framework: str) -> bool:
    """Whether a hook's script runs kbindex, itself or through the framework's configuration."""
    if "kbindex hook" in hook:
        return True
    is_framework = "pre-commit.com" in hook or "pre_commit" in hook
    return is_framework and ("kbindex hook" in framework or "id: kbindex" in framework)
