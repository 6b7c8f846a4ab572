"""Random damage to the local state: every answer stays right, and nothing damaged is committed.

A short run; ``stress/test_local_damage.py`` is the long one.
"""

from __future__ import annotations

import random

from testing.damage import Victim, fill
from testing.repositories import Template

N_MUTATIONS = 60


def test_no_damage_to_the_local_state_is_believed(from_template: Template) -> None:
    victim = Victim(from_template("damage", fill))
    for seed in range(10_000, 10_000 + N_MUTATIONS):
        done = victim.suffer(seed)
        try:
            victim.answer(random.Random(seed), 1)
            if seed % 4 == 0:
                victim.prove(strict=seed % 20 == 0)
        except AssertionError as error:
            raise AssertionError(f"{done}: {error}") from None
