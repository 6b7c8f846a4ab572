"""People with clones of one repository, seeded: what kbindex says is true, and nothing is lost.

A short run is part of every test run. The long one: ``KBINDEX_STRESS_SECONDS=600 python -m pytest
-m stress tests/stress/test_merges.py -s`` (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from simulation import Tally, World

from testing.served_hooks import served_hooks


def simulate(
    folder: Path, environment: dict[str, str], seed: int, n_steps: int, until: float = float("inf")
) -> Tally:
    folder.mkdir()
    with served_hooks(folder / "pipes") as hooks:
        world = World(folder, environment, hooks, seed)
        with world.counting():
            for _ in range(n_steps):
                if time.monotonic() > until:
                    break
                world.step()
    return world.tally


def assert_no_fault(tally: Tally) -> None:
    told = [f"{kind}: {what}" for kind, what in tally.faults[:5]]
    assert tally.faults == [], "\n\n".join([tally.render(), *told])


def test_some_people_do_this_and_that_and_nothing_is_lost(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    tally = simulate(tmp_path / "world", environment, seed=1, n_steps=25)
    assert_no_fault(tally)


@pytest.mark.stress
def test_many_people_do_this_and_that_and_nothing_is_lost(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    until = time.monotonic() + float(os.environ.get("KBINDEX_STRESS_SECONDS", "300"))
    seed = int(os.environ.get("KBINDEX_STRESS_SEED", "1000"))
    n_worlds = int(os.environ.get("KBINDEX_STRESS_WORLDS", "1000"))
    total = Tally()
    for number in range(n_worlds):
        if time.monotonic() > until:
            break
        total += simulate(tmp_path / f"world{number}", environment, seed + number, 100, until)
        print(f"\nworlds: {number + 1}\n{total.render()}", flush=True)
    assert_no_fault(total)
