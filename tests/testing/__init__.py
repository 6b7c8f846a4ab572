"""What tests share: repositories, commands, servers and damage. Fixtures are in ``conftest.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

# Before the modules are imported: their asserts then show values, as those of tests do.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.stem}" for file in Path(__file__).parent.glob("[a-z]*.py"))
)
