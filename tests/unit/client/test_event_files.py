"""The event files of a job: found below its working directory and nowhere else, read together, told by all faces."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.api_support import served
from tests.unit.cli_support import Cli

from mpijob import MPIJob
from mpijob.backends.attempts import artifacts
from mpijob.backends.capabilities import SupportsWorkingDirectory
from mpijob.backends.memory import MemoryBackend
from mpijob.client import Client
from mpijob.client.integrations import tfevents
from mpijob.client.observe import event_files
from mpijob.errors import Unsupported
from mpijob.model import Artifact, JobRef
from mpijob.observation.metrics.event_files import EventScalars

pytestmark = pytest.mark.req("C-tb", "PMV-014")


class WithFiles(MemoryBackend, SupportsWorkingDirectory):
    """An engine whose jobs work in one directory."""

    def __init__(self, work: Path) -> None:
        super().__init__()
        self.work = work

    def working_directory(self, ref: JobRef) -> Path:
        return self.work

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        return artifacts.list_written(self.work, {})


def written(path: Path, tag: str, values: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [tfevents.record(tfevents.event(1e9 + at, at, {tag: one})) for at, one in enumerate(values)]
    path.write_bytes(b"".join(records))


def read(work: Path, points: int = 100) -> EventScalars:
    return event_files.of_directory(work, artifacts.list_written(work, {}), points=points)


def test_every_directory_of_event_files_is_a_run(tmp_path: Path) -> None:
    written(tmp_path / "logs/train/events.out.tfevents.1.host.7", "loss", [3, 2])
    written(tmp_path / "logs/validation/events.out.tfevents.1.host.8", "loss", [4, 3])
    written(tmp_path / "events.out.tfevents.2.host", "lr", [0.5])
    (tmp_path / "model.bin").write_bytes(b"weights")
    found = read(tmp_path)
    assert [(one.run, one.tag, one.last) for one in found.series] == [
        ("logs/train", "loss", 2),
        ("logs/validation", "loss", 3),
        (".", "lr", 0.5),
    ]
    assert (found.files, found.notes) == (3, ())


@pytest.mark.security
def test_no_link_leads_out_of_the_working_directory(tmp_path: Path) -> None:
    work, secret = tmp_path / "work", tmp_path / "secret"
    written(secret / "events.out.tfevents.1.host", "salary", [1, 2])
    work.mkdir()
    (work / "logs").symlink_to(secret)
    (work / "events.out.tfevents.2.host").symlink_to(secret / "events.out.tfevents.1.host")
    assert read(work) == EventScalars()
    listed = [
        Artifact(path, 100, 0.0) for path in ("logs/events.out.tfevents.1.host", "events.out.tfevents.2.host")
    ]
    found = event_files.of_directory(work, listed, points=10)  # they became links after the files were listed
    assert found.series == ()
    assert len(found.notes) == 2


@pytest.mark.security
def test_what_is_no_plain_file_and_what_is_gone_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tfevents.pipe")
    listed = [Artifact(path, 1, 0.0) for path in ("tfevents.pipe", "gone.tfevents")]
    found = event_files.of_directory(tmp_path, listed, points=10)
    assert sorted(found.notes) == [
        "gone.tfevents: No such file or directory",
        "tfevents.pipe: is not a regular file",
    ]


@pytest.mark.security
def test_all_files_together_have_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(6):
        written(tmp_path / f"run-{at}/tfevents.1", "loss", [float(step) for step in range(200)])
    size = (tmp_path / "run-0/tfevents.1").stat().st_size
    monkeypatch.setattr(event_files, "_MOST_BYTES", 3 * size)
    monkeypatch.setattr(event_files, "MOST_FILES", 5)
    found = read(tmp_path)
    assert found.notes[0] == "only the newest 5 of 6 event files are read"
    assert sum(one.count for one in found.series) < 4 * 200
    assert len(found.notes) == 6


def test_reading_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path / "tfevents.1", "loss", [1])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, tmp_path / "tfevents.1")}
    read(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_sdk_rest_and_command_tell_the_same(tmp_path: Path) -> None:
    backend = WithFiles(tmp_path)
    written(tmp_path / "logs/events.out.tfevents.1.host", "loss", [3, 2, 1])
    with Client(backend) as client:
        client.run(MPIJob(name="train", workers=1, command=("true",)))
        (loss,) = client.scalars("train").series
        assert (loss.tag, loss.values) == ("loss", (3, 2, 1))
    cli = Cli(backend)
    assert (
        json.loads(cli("curves", "train", "--event-files", "-o", "json").stdout)["series"][0]["tag"] == "loss"
    )
    assert "logs  loss    1     1      3" in cli("curves", "train", "--event-files").stdout
    assert "logs,loss," in cli("curves", "train", "--event-files", "-o", "csv").stdout
    assert cli("curves", "train", "--event-files", "--rank", "0").exit_code == 2
    with served(backend) as stranger:
        assert stranger.get("/trainjobs/default/train/scalars").status_code == 401
        told = stranger.sign_in().get("/trainjobs/default/train/scalars?points=2").json()
        assert [one["values"] for one in told["series"]] == [[3, 1]]
        assert stranger.get("/trainjobs/default/train/scalars?points=5000").status_code == 400


def test_an_engine_without_files_here_says_how_to_fetch_them() -> None:
    with Client(MemoryBackend()) as client:
        client.run(MPIJob(name="train", workers=1, command=("true",)))
        with pytest.raises(Unsupported, match="not on this machine"):
            client.scalars("train")
