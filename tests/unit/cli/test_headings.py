"""Every command stands under a heading on purpose: a new one fails here until somebody has chosen its place."""

from __future__ import annotations

import pytest
from tests.unit.cli_support import Cli

from mpijob.cli.root import ENTRIES

HEADINGS = {
    "Run": "create run plan alloc array schedule",
    "See": "list get describe runs why logs events stacks top profile curves mlflow tensorboard watch ui wait queue "
    "quota bundle patterns audit network acct trace artifacts",
    "Steer": "cancel suspend resume scale delete retry exec",
    "Reuse": "register data clone compare export move template convert image",
    "Learn": "rules explain schema doctor mpi completion version",
    "Admin": "admin runtimes record",
    "Services": "recorder controller webhook operator broker notifier exporter",
}


def test_every_command_stands_under_the_heading_that_lists_it() -> None:
    told: dict[str, list[str]] = {}
    for name, entry in ENTRIES.items():
        told.setdefault(entry.heading, []).append(name)
    assert {heading: sorted(names) for heading, names in told.items()} == {
        heading: sorted(names.split()) for heading, names in HEADINGS.items()
    }


def test_the_help_has_the_headings_in_the_order_in_which_people_need_them() -> None:
    lines = Cli()("--help").stdout.splitlines()
    shown = [line.rstrip(":") for line in lines if line.rstrip(":") in HEADINGS and line.endswith(":")]
    assert shown == list(HEADINGS)


@pytest.mark.parametrize("name", HEADINGS["Services"].split())
def test_a_service_is_not_among_what_users_reuse(name: str) -> None:
    assert ENTRIES[name].heading == "Services"
