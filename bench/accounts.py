"""The record's size and speed: what a gigabyte of logs takes, a search in a million lines, questions over 100,000 jobs.

The lines are what a training says: a step, changing numbers, a time, now and then a warning and a trace. Questions are
those of `mpijob acct`: a page of all, of one user, of one state, of a label, of a month; each many times in turn. With
BENCH_POSTGRES (an address) they are asked of PostgreSQL too.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.line import Line, at_most, compared
from bench.places import Options
from mpijob.history import account_store
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.records import LogSource
from mpijob.model import JobKey, JobRef, JobState, LogQuery, MPIJob, Phase, Role
from mpijob.model.status.accounts import AccountQuery
from mpijob.observation.logs import cri

LINES = 1_000_000
JOBS = 100_000
GIGABYTE = 1_000_000_000
ROUNDS = 200


def measure(options: Options) -> Iterator[Line]:
    """Yield the figures of the record."""
    with tempfile.TemporaryDirectory() as place:
        yield from _lines(Path(place), LINES // 10 if options.quick else LINES)
    address = os.environ.get("BENCH_POSTGRES", "")
    for name, database in (("SQLite", ""), *((("PostgreSQL", address),) if address else ())):
        with tempfile.TemporaryDirectory() as place:
            yield _questions(Archive(place, database=database), name, JOBS // 10 if options.quick else JOBS)


def _said(count: int) -> Iterator[bytes]:
    chance = random.Random(1)
    for number in range(count):
        text = (
            f"[{number % 3600 // 60:02d}:{number % 60:02d}] epoch {number // 5000} step {number} | "
            f"loss {chance.random():.5f} | grad_norm {chance.random() * 9:.3f} | lr 3.0e-04 | "
            f"{chance.randint(900, 1100)} tokens/s | {chance.randint(60, 79)}.{chance.randint(0, 9)} GiB"
        )
        if number % 997 == 0:
            text = f"WARNING: rank {number % 64}: data loader was slow ({chance.random():.2f} s) in batch {number}"
        yield cri.format_line(1_700_000_000_000_000_000 + number * 1_234_567, "stdout", text.encode(), False)


def _lines(place: Path, count: int) -> Iterator[Line]:
    lines = [*_said(count)]
    raw = sum(len(one) for one in lines)
    archive = Archive(str(place))
    archive.put_job(JobState(ref=JobRef("bench", "job", "u"), phase=Phase.RUNNING), now=1.0)
    capture = Capture(
        archive,
        archive.add_source(
            LogSource(key=JobKey("bench", "u"), role=Role.RANK, rank=0, worker=0, source="rank-0")
        ),
    )
    begun = time.perf_counter()
    for line in lines:
        capture.write(line)
    capture.end()
    seconds = time.perf_counter() - begun
    stored = sum(path.stat().st_size for path in place.rglob("*.log"))
    each = stored / raw * GIGABYTE
    note = f"{raw / 1e6:.0f} MB of training output"
    yield compared("record: 1 GB of logs on disk", "MB", each / 1e6, 150.0, at_most(1.0), note=note)
    rate = count / seconds
    yield Line(
        "record: lines stored a second", "lines/s", rate, 200_000, rate / 200_000, note="goal ≥ 200,000"
    )
    past, query = ArchiveReader(archive), LogQuery(regex="batch 99700\\b")
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        found = [*past.logs(JobRef("bench", "job"), query)]
        times.append(time.perf_counter() - begun)
        assert found or count < 100_000
    yield compared(
        f"record: search in {count:,} stored lines", "s", statistics.median(times), 1.0, at_most(1.0)
    )


def _questions(archive: Archive, name: str, jobs: int) -> Line:
    _fill(archive, jobs)
    chance = random.Random(2)
    times = []
    for _ in range(ROUNDS):
        for query in _asked(chance, jobs):
            begun = time.perf_counter()
            page = account_store.page(archive, query)
            times.append(time.perf_counter() - begun)
            assert page.items
    times.sort()
    p99 = times[int(len(times) * 0.99)] * 1000
    note = f"median {statistics.median(times) * 1000:.1f} ms, worst {times[-1] * 1000:.0f} ms"
    return compared(
        f"record: question over {jobs:,} jobs, {name}, p99", "ms", p99, 100.0, at_most(1.0), note=note
    )


def _asked(chance: random.Random, jobs: int) -> tuple[AccountQuery, ...]:
    moment = float(chance.randrange(jobs))
    return (
        AccountQuery(),
        AccountQuery(owners=(f"user{chance.randrange(200)}",)),
        AccountQuery(namespace=f"team{chance.randrange(20)}", phases=("Failed",)),
        AccountQuery(selector=f"project=p{chance.randrange(500)}"),
        AccountQuery(since=moment, until=moment + 1000.0),
        AccountQuery(cause="OOM_KILLED", limit=20),
    )


def _fill(archive: Archive, jobs: int) -> None:
    chance = random.Random(3)
    spec = msgspec.json.encode(MPIJob(name="job", workers=4, command=("python", "train.py")))
    with archive.transaction() as db:
        for number in range(jobs):
            failed = chance.random() < 0.1
            state = JobState(
                ref=JobRef(f"team{number % 20}", f"job{number}", f"u{number}"),
                phase=Phase.FAILED if failed else Phase.SUCCEEDED,
                owner=f"user{chance.randrange(200)}",
                labels={"project": f"p{chance.randrange(500)}"},
                world=4,
                workers_wanted=4,
                created=float(number),
                started=number + 5.0,
                finished=number + 500.0,
            )
            account = account_store.build_account(state, spec, None, {}, number + 500.0)
            cause = "OOM_KILLED" if failed and chance.random() < 0.2 else ""
            account_store.save_account(db, msgspec.structs.replace(account, cause=cause))
