"""Secrets stay secret, and what belongs to one user of the machine is closed to the others."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from mpijob import Client
from mpijob.errors import InvalidJob
from mpijob.model import Secret
from mpijob.settings import Settings

from . import sight
from .support import PATIENCE, a_job, eventually, running, said

pytestmark = [pytest.mark.engine, pytest.mark.security]

TOKEN = "s3cr3t value with 'quotes' and $HOME"
NOBODY = 65534


def files_below(*places: Path) -> Iterator[Path]:
    for place in places:
        yield place
        yield from place.rglob("*")


def holders(place: Path, secret: str) -> list[str]:
    """Return the files in which a secret can be read."""
    found = [path for path in files_below(place) if path.is_file() and secret.encode() in path.read_bytes()]
    return [path.name for path in found]


def test_a_secret_reaches_every_rank_and_is_written_nowhere_else(
    client: Client, family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    (tmp_path / "key").write_text("from a file\n")
    secrets = (
        Secret(env="TOKEN", source="env:MY_TOKEN"),
        Secret(env="KEY", source=f"file:{tmp_path / 'key'}"),
    )
    script = (
        'printf %s "$TOKEN" | sha256sum; echo "$KEY" | tr a-z A-Z; while [ ! -e go ]; do sleep 0.05; done'
    )
    job = running(client, a_job("quiet", script, mpi=family, secrets=secrets))
    home = Path(client.settings.home)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    heard = [f"{digest}  -", "FROM A FILE"]
    eventually(lambda: said(job) == {0: heard, 1: heard}, "both ranks have it")
    words = [word for process in sight.of_job(home, job.ref.uid).values() for word in process.argv]
    assert words
    assert not [word for word in words if TOKEN in word]
    assert holders(home, TOKEN) == ["secrets.json"]
    (home / "jobs" / job.ref.uid / "work" / "go").touch()
    job.wait_for_completion(PATIENCE)
    eventually(lambda: not holders(home, TOKEN), "the secret is forgotten")
    assert "TOKEN" in job.export()
    assert TOKEN not in job.export()


def test_a_secret_that_is_not_there_is_refused_by_name_not_by_value(client: Client) -> None:
    with pytest.raises(InvalidJob, match="TOKEN"):
        client.submit(a_job("open", secrets=(Secret(env="TOKEN", source="env:NO_SUCH_VARIABLE_HERE"),)))
    assert client.list().total == 0


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """The home lies where everybody may look, so that only its own modes protect it."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield msgspec.structs.replace(settings, home=f"{directory}/home")


@pytest.mark.req("FR-SEC-004")
def test_files_and_sockets_of_a_running_job_are_closed_to_other_users(client: Client) -> None:
    job = running(client, a_job("mine", "echo hi; sleep 300"))
    home = Path(client.settings.home)
    places = [home, *tempfile_of(job.ref.uid)]
    assert [oct(stat.S_IMODE(place.stat().st_mode)) for place in places] == ["0o700"] * len(places)
    rank = eventually(lambda: sight.rank(home, job.ref.uid, 0), "the rank runs")
    names = [str(path) for path in files_below(*places) if not path.is_symlink()]
    assert any(Path(name).is_socket() for name in names)
    assert opened_by_another_user(["/etc/passwd"]) == ["/etc/passwd"]
    assert opened_by_another_user([*names, f"/proc/{rank}/environ"]) == []


def tempfile_of(uid: str) -> list[Path]:
    return [*Path(tempfile.gettempdir()).glob(f"mpijob-{uid[:12]}*")]


def opened_by_another_user(names: list[str]) -> list[str]:
    """Return what another user could open; without the right to be another user, ask the modes."""
    if os.geteuid() != 0:
        return [name for name in names if not name.startswith("/proc") and _open_to_others(Path(name))]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _knock_as_nobody(names, write)
    os.close(write)
    with os.fdopen(read) as answers:
        opened = answers.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    return opened


def _knock_as_nobody(names: list[str], write: int) -> NoReturn:
    code = 1
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        opened = [name for name in names if _opens(Path(name))]
        os.write(write, "\n".join(opened).encode())
        code = 0
    finally:
        os._exit(code)


def _opens(path: Path) -> bool:
    kind = stat.S_IFMT(path.stat().st_mode) if os.access(path.parent, os.X_OK) else 0
    try:
        if kind == stat.S_IFSOCK:
            socket.socket(socket.AF_UNIX).connect(str(path))
        else:
            os.close(os.open(path, (os.O_WRONLY if kind == stat.S_IFIFO else os.O_RDONLY) | os.O_NONBLOCK))
    except PermissionError:
        return False
    return True


def _open_to_others(path: Path) -> bool:
    above = [path, *path.parents]
    return all(parent.stat().st_mode & 0o005 for parent in above)
