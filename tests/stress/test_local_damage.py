"""A long run of random damage to the local state. See CONTRIBUTING.md for how it is started.

``KBINDEX_STRESS_MUTATIONS`` says how many (1,000), ``KBINDEX_STRESS_SEED`` where to begin.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from conftest import Template
from mutations import Victim, fill, kind_of

pytestmark = pytest.mark.stress


def test_no_damage_to_the_local_state_is_believed(from_template: Template) -> None:
    n_mutations = int(os.environ.get("KBINDEX_STRESS_MUTATIONS", "1000"))
    first = int(os.environ.get("KBINDEX_STRESS_SEED", "0"))
    victim = Victim(from_template("damage", fill))
    failed: Counter[str] = Counter()
    examples = []
    for seed in range(first, first + n_mutations):
        done = victim.suffer(seed)
        try:
            victim.answer(random.Random(seed), 2)
            victim.answer(random.Random(seed + 1), 1)
            victim.prove(strict=seed % 5 == 0)
        except (AssertionError, ValueError) as error:
            failed[kind_of(done)] += 1
            examples.append(f"{done}: {str(error)[:600]}")
            print(f"FAILED {done}: {str(error)[:300]}", flush=True)
        if seed % 50 == 49:
            print(f"tried {seed + 1 - first}, failed {sum(failed.values())}", flush=True)
    print(f"tried {n_mutations}, held {n_mutations - sum(failed.values())}, failed "
          f"{sum(failed.values())}")  # fmt: skip
    assert not failed, "\n".join(examples[:20])
