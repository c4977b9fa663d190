"""The migration page: its commands run as it says, and what they convert runs as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Command, steps
from tests.docs.readers import a_reader

PAGE = pages.read("migration")


@pytest.mark.engine
@pytest.mark.req("C-hpc", "D-migrate")
def test_the_commands_of_the_migration_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(PAGE)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(PAGE)) >= 9
