"""What a job said: its ranks' files, live or stored, and the files that Slurm writes for a script."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.slurm_support import (
    BEGIN,
    FakeHost,
    Submitted,
    a_job,
    a_plan,
    a_reader,
    ended,
    squeue,
)

from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs import logs, plain_jobs
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.logs import ScriptOutput
from mpijob.errors import NotFound
from mpijob.model import LogLine, LogQuery, Role
from mpijob.observation.logs import cri


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root", squeue=squeue({}), sacct="", scontrol="")


@pytest.fixture
def reader(host: FakeHost, tmp_path: Path) -> JobReader:
    return a_reader(host, tmp_path)


def never(seconds: float) -> None:
    raise AssertionError("nobody waits here")


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text.decode(errors="replace") for line in lines]


# -- ranks -------------------------------------------------------------------------------------
def write(job: Submitted, name: str, *said: str, attempt: int = 1, at: float = 6.0) -> Path:
    """Add lines to a log file of an attempt, each a second after the other."""
    folder = job.path / f"a{attempt}" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("ab") as out:
        for number, text in enumerate(said):
            when = int((BEGIN + at + number) * 1e9)
            out.write(cri.format_line(when, "stdout", text.encode(), partial=False))
    return folder / name


@pytest.fixture
def job(host: FakeHost) -> Submitted:
    job = Submitted(host)
    job.began()
    return job


def of_ranks(
    reader: JobReader, job: Submitted, pause: Callable[[float], None] = never, **query: object
) -> list[LogLine]:
    wanted = LogQuery(**query)  # type: ignore[arg-type]  # any field
    return [*logs.of_ranks(reader, job.files, wanted, pause)]


def test_the_lines_of_all_ranks_are_merged_by_time_each_with_its_worker(
    reader: JobReader, job: Submitted
) -> None:
    write(job, "rank-0.log", "a", "c")
    write(job, "rank-1.log", "b", at=6.5)
    found = of_ranks(reader, job)
    assert texts(found) == ["a", "b", "c"]
    assert [(line.rank, line.worker, line.role) for line in found[:2]] == [
        (0, 0, Role.RANK),
        (1, 1, Role.RANK),
    ]


def test_one_attempt_can_be_asked_for(reader: JobReader, job: Submitted) -> None:
    write(job, "launcher.log", "first")
    write(job, "launcher.log", "second", attempt=2)
    assert texts(of_ranks(reader, job)) == ["first", "second"]
    assert texts(of_ranks(reader, job, attempt=2)) == ["second"]
    assert of_ranks(reader, job, attempt=9) == []


def test_a_job_that_has_not_begun_has_said_nothing(reader: JobReader, host: FakeHost) -> None:
    assert of_ranks(reader, Submitted(host)) == []


@pytest.mark.security
def test_files_of_other_names_are_no_logs(reader: JobReader, job: Submitted, tmp_path: Path) -> None:
    write(job, "rank-0.log", "mine")
    for name in ("rank-x.log", "notes.txt", "rank-0.log.bak", "-rf"):
        write(job, name, "not mine")
    assert texts(of_ranks(reader, job)) == ["mine"]


@pytest.mark.security
def test_a_log_that_was_cut_off_or_is_damaged_is_read_as_far_as_it_goes(
    reader: JobReader, job: Submitted
) -> None:
    path = write(job, "rank-0.log", "whole")
    with path.open("ab") as out:
        out.write(b"\xff\xfe no stamp\n2025-11-17T17:20:09.0")
    assert texts(of_ranks(reader, job)) == ["whole", "\ufffd\ufffd no stamp"], "the last line has no end yet"


def test_following_ends_with_the_job_and_has_all_that_was_said_meanwhile(
    reader: JobReader, job: Submitted
) -> None:
    write(job, "rank-0.log", "early")

    def pause(seconds: float) -> None:
        if not (job.path / "a1" / "logs" / "rank-1.log").exists():
            write(job, "rank-1.log", "late")
            job.left(0, 0)

    assert texts(of_ranks(reader, job, pause, follow=True)) == ["early", "late"]


def test_following_a_job_that_is_cancelled_meanwhile_ends(reader: JobReader, job: Submitted) -> None:
    def pause(seconds: float) -> None:
        job.acted("cancelled", at=20)
        job.journal("20 term", "21 end code=143")

    write(job, "rank-0.log", "early")
    assert texts(of_ranks(reader, job, pause, follow=True)) == ["early"]


def test_following_a_job_that_is_deleted_meanwhile_ends(reader: JobReader, job: Submitted) -> None:
    files, pauses = job.files, list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        reader.jobs.remove(job.place)

    write(job, "rank-0.log", "early")
    found = [*logs.of_ranks(reader, files, LogQuery(follow=True), pause)]
    assert texts(found)[0] == "early"
    assert len(pauses) == 1


# -- scripts -----------------------------------------------------------------------------------
@pytest.fixture
def script(host: FakeHost, tmp_path: Path) -> Submitted:
    """Return a script of ours whose output goes to two files, of which it was kept where they are."""
    job = Submitted(host, a_plan(a_job(command=(), script="run.sh")))
    paths = {"StdOut": str(tmp_path / "my out"), "StdErr": str(tmp_path / "my err")}
    (job.path / "output.json").write_bytes(msgspec.json.encode(paths))
    return job


def of_script(
    reader: JobReader, job: Submitted, pause: Callable[[float], None] = never, **query: object
) -> list[LogLine]:
    wanted = LogQuery(**query)  # type: ignore[arg-type]  # any field
    return [*logs.of_script(reader, reader.get(job.ref), job.files, wanted, pause)]


def over(host: FakeHost) -> None:
    """Let Slurm say that the job has ended."""
    host.replies["squeue"] = squeue({"%T": "COMPLETED", "%e": f"{BEGIN + 65:.0f}"})


def test_a_script_has_two_streams_or_one(reader: JobReader, script: Submitted, tmp_path: Path) -> None:
    (tmp_path / "my out").write_text("one\n")
    (tmp_path / "my err").write_text("two\n")
    found = of_script(reader, script)
    assert sorted((line.stream, line.text, line.role) for line in found) == [
        ("stderr", b"two", Role.LAUNCHER),
        ("stdout", b"one", Role.LAUNCHER),
    ]
    same = {"StdOut": str(tmp_path / "my out"), "StdErr": str(tmp_path / "my out")}
    (script.path / "output.json").write_bytes(msgspec.json.encode(same))
    assert texts(of_script(reader, script)) == ["one"]


@pytest.mark.parametrize("kept", [b"", b'{"StdOut":', b"[1]", b"{}"])
def test_where_it_was_not_kept_slurm_is_asked(
    reader: JobReader, script: Submitted, host: FakeHost, tmp_path: Path, kept: bytes
) -> None:
    (script.path / "output.json").write_bytes(kept)
    (tmp_path / "asked").write_text("said\n")
    host.replies["scontrol"] = f"JobId=67 StdErr={tmp_path}/asked StdOut={tmp_path}/asked WorkDir=/x\n"
    assert texts(of_script(reader, script)) == ["said"]


def test_where_nobody_knows_it_any_more_that_is_said_with_where_to_look(
    reader: JobReader, script: Submitted, host: FakeHost
) -> None:
    (script.path / "output.json").unlink()
    over(host)
    host.replies["scontrol"] = Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")
    with pytest.raises(NotFound, match="'solve'") as caught:
        of_script(reader, script)
    assert "directory" in caught.value.hint


def test_a_script_that_has_written_nothing_yet_has_said_nothing(reader: JobReader, script: Submitted) -> None:
    assert of_script(reader, script) == []


def test_a_line_without_its_end_is_told_once_the_script_has_ended(
    reader: JobReader, script: Submitted, host: FakeHost, tmp_path: Path
) -> None:
    (tmp_path / "my out").write_bytes(b"whole\nhalf\xff")
    assert texts(of_script(reader, script)) == ["whole"]
    over(host)
    assert texts(of_script(a_reader(host, tmp_path / "later"), script)) == ["whole", "half\ufffd"]


def test_a_script_is_followed_to_its_end_and_slurm_is_asked_once_for_its_files(
    host: FakeHost, tmp_path: Path
) -> None:
    out = tmp_path / "slurm-50.out"
    host.replies["squeue"] = squeue({"%A": "50", "%j": "relax"})
    host.replies["scontrol"] = f"JobId=50 StdErr={out} StdOut={out}\n"
    out.write_text("a\nb")
    reader = a_reader(host, tmp_path)
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            out.write_text("a\nbc\nd")
            host.replies["squeue"] = squeue({"%A": "50", "%j": "relax", "%T": "COMPLETED"})
        if len(pauses) > 2:
            reader.poll.snapshot(since=reader.poll.snapshot().time + 1e-6)

    state = plain_jobs.state(reader.plain(plain_jobs.ref(ended(jobidraw="50", jobname="relax"))))
    found = [*logs.of_script(reader, state, None, LogQuery(follow=True), pause)]
    assert texts(found) == ["a", "bc", "d"]
    assert len([argv for argv in host.asked if argv[:3] == ("scontrol", "-o", "show")]) <= 2


def test_following_a_script_that_slurm_forgets_meanwhile_ends(host: FakeHost, tmp_path: Path) -> None:
    out = tmp_path / "slurm-50.out"
    out.write_text("a\n")
    host.replies["squeue"] = squeue({"%A": "50", "%j": "relax"})
    host.replies["scontrol"] = f"JobId=50 StdErr={out} StdOut={out}\n"
    reader = a_reader(host, tmp_path)

    def pause(seconds: float) -> None:
        host.replies["squeue"] = ""
        reader.poll.snapshot(since=reader.poll.snapshot().time + 1e-6)

    state = plain_jobs.state(reader.plain(plain_jobs.ref(ended(jobidraw="50", jobname="relax"))))
    assert texts([*logs.of_script(reader, state, None, LogQuery(follow=True), pause)]) == ["a"]


# -- one file ----------------------------------------------------------------------------------
def test_a_file_is_read_on_where_reading_ended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = ScriptOutput(path, "stdout", 2)
    assert [*output.read(last=False)] == []
    path.write_bytes(b"one\ntw")
    assert [line.text for line in output.read(last=False)] == [b"one"]
    path.write_bytes(b"one\ntwo\n")
    (line,) = output.read(last=False)
    assert (line.text, line.attempt, line.time) == (b"two", 2, path.stat().st_mtime_ns)
    assert [*output.read(last=True)] == []


def test_a_file_that_slurm_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = ScriptOutput(path, "stdout", 1)
    path.write_bytes(b"first try, and a long one\nha")
    assert len([*output.read(last=False)]) == 1
    path.write_bytes(b"again\n")
    assert [line.text for line in output.read(last=False)] == [b"again"]


@pytest.mark.security
@pytest.mark.parametrize("kind", ["pipe", "endless", "directory", "loop"])
def test_what_is_no_plain_file_says_nothing_and_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(path)
    found, output = list[list[LogLine]](), ScriptOutput(path, "stdout", 1)
    reading = threading.Thread(target=lambda: found.append([*output.read(last=True)]), daemon=True)
    reading.start()
    reading.join(timeout=5)
    assert found == [[]]
