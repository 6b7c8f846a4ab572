"""The environment of every call of git: its words and answers are the same whoever calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# What `git rev-parse --local-env-vars` names: they speak of the repository a hook runs in.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_IMPLICIT_WORK_TREE",
)
# Editors set the first four, as `git --literal-pathspecs commit` does for its hooks: pathspecs with
# our own magic would name nothing. The others make commands say something else.
_MISLEADING_VARIABLES = (
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_ATTR_SOURCE",
    "GIT_CONFIG",
    "GIT_DIFF_OPTS",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
)


def call_environment(given: Mapping[str, str], *, is_elsewhere: bool) -> dict[str, str]:
    """Return the environment of our calls, made from the ``given`` one.

    ``is_elsewhere``: the repository is that of a folder that was named, whatever ``given`` says.
    """
    dropped = _MISLEADING_VARIABLES + (_REPOSITORY_VARIABLES if is_elsewhere else ())
    kept = {
        name: value
        for name, value in given.items()
        if name not in dropped
        # A trace on stderr would stand among the words of an error.
        and (not name.startswith("GIT_TRACE") or value.startswith("/"))
    }
    # What a replacement ref stands for is in one clone alone, and a commit names the original.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


def without_split_index(given: Mapping[str, str], index: str) -> dict[str, str]:
    """Return an environment in which git works on the file ``index`` and writes no other."""
    # With core.splitIndex each would leave a file beside the repository's own index.
    number = int(given.get("GIT_CONFIG_COUNT") or 0)
    return {
        **given,
        "GIT_INDEX_FILE": index,
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "core.splitIndex",
        f"GIT_CONFIG_VALUE_{number}": "false",
    }
