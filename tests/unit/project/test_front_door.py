"""The names that users import, and that importing them costs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import mpijob
import mpijob.client


def test_the_front_door_is_what_we_promise() -> None:
    assert mpijob.__all__ == [
        "AsyncClient",
        "Client",
        "Job",
        "JobFailed",
        "JobState",
        "MPIJob",
        "MpiJobError",
        "Phase",
        "Resources",
        "diagnose",
        "inspect_image",
        "report",
    ]


@pytest.mark.parametrize("name", mpijob.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(mpijob, name).__name__ == name


@pytest.mark.parametrize("room", [mpijob, mpijob.client])
def test_an_unknown_name_is_an_attribute_error(room: object) -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        room.nothing_here  # type: ignore[attr-defined]  # noqa: B018 this is what is tested


def test_making_a_job_loads_neither_client_nor_loop_nor_yaml() -> None:
    code = (
        "import sys; from mpijob import MPIJob; MPIJob(name='a');"
        "print([m for m in ('asyncio', 'yaml', 'mpijob.client', 'sqlite3', 'click') if m in sys.modules])"
    )
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unmeasured
    )
    assert done.stdout == "[]\n"
