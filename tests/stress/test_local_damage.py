"""A long run of random damage to the local state; CONTRIBUTING.md has the command."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from testing.damage import Victim, fill, kind_of
from testing.repositories import Template

pytestmark = pytest.mark.stress
SECONDS = int(os.environ.get("KBINDEX_STRESS_SECONDS", "600"))
SEED = int(os.environ.get("KBINDEX_STRESS_SEED", "0"))


def test_no_damage_to_the_local_state_is_believed(from_template: Template) -> None:
    victim = Victim(from_template("damage", fill))
    failed: Counter[str] = Counter()
    examples = []
    n_tried, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed, n_tried = SEED + n_tried, n_tried + 1
        done = victim.suffer(seed)
        try:
            victim.answer(random.Random(seed), 2)
            victim.answer(random.Random(seed + 1), 1)
            victim.prove(strict=seed % 5 == 0)
        except AssertionError as error:
            failed[kind_of(done)] += 1
            examples.append(f"{done}: {str(error)[:600]}")
        if n_tried % 100 == 0:
            print(f"tried {n_tried}, failed {failed.total()}", flush=True)
    print(f"tried {n_tried}, held {n_tried - failed.total()}, failed {failed.total()}")
    assert not failed, "\n".join(examples[:20])
