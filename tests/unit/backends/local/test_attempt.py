"""The parts of one attempt on the local engine, each by itself: clock, reports, causes, delays."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from mpijob.backends.attempts import log_reader
from mpijob.backends.attempts.clock import Clock
from mpijob.backends.attempts.evidence import findings_for
from mpijob.backends.local.logs.log_writer import LogFile
from mpijob.backends.local.queue import recovery, scheduler
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.fault_injection import Fault, parse
from mpijob.backends.local.supervisor.health_monitor import HealthMonitor
from mpijob.backends.local.supervisor.report_pipe import Reports
from mpijob.errors import Finding
from mpijob.model import Family, JobRef, JobState, LogQuery, MPIJob, Phase, Plan, PlannedWorker, Retry
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import PhaseResult, Reason, derive, failure
from mpijob.settings import Settings

HOUR = 3600.0


def a_plan(uid: str = "u1", retry: Retry | None = None, family: Family = Family.MPICH) -> Plan:
    job = MPIJob(name="job", workers=2, command=("true",), retry=retry or Retry())
    workers = tuple(PlannedWorker(i, f"job-worker-{i}", 1, (i,)) for i in range(2))
    return Plan(
        job=job, uid=uid, engine="local", family=family, family_version="5", workers=workers, world=2,
        hostfile="", launch=("mpiexec",), env={}, isolation="process-groups",
    )  # fmt: skip


def a_state(uid: str = "u1", **fields: object) -> JobState:
    return JobState(ref=JobRef("default", "job", uid), phase=Phase.QUEUED, created=1.0, **fields)  # type: ignore[arg-type]  # short


# -- clock --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_the_clock_of_an_attempt_goes_on_when_the_machines_jumps(
    monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clock, before = Clock(), time.time()
    true = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true() + int(jump * 1e9))
    assert before - 1 < clock.now() < before + 60


def test_the_clock_of_an_attempt_never_begins_before_its_job() -> None:
    started = time.time() + HOUR  # written down before the clock was set back
    assert started <= Clock(started).now() < started + 60


def test_the_machines_clock_may_jump_while_a_log_is_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, clock = LogFile(tmp_path / "rank-0.log", Clock().now_ns), time.time_ns
    begun = time.monotonic()

    def pause(seconds: float) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: clock() - int(HOUR * 1e9))
        time.sleep(seconds)  # real time passes: the window is a few hundredths of a second

    def where() -> tuple[Iterable[tuple[Path, int]], dict[int, int], bool]:
        log.feed("stdout", b"tick\n")
        return [(tmp_path, 1)], {0: 0}, time.monotonic() - begun > 5

    lines = log_reader.follow(where, LogQuery(follow=True), pause)
    assert [next(lines).text for _ in range(3)] == [b"tick"] * 3
    assert time.monotonic() - begun < 5


def test_a_job_that_waited_while_the_clock_was_set_back_never_starts_before_it_was_queued(
    tmp_path: Path,
) -> None:
    store, now = Store(Home(tmp_path)), time.time()
    store.add(a_plan(), a_state(queued=now), "{}", 0)
    assert scheduler.claim(store, Settings(cores=2, memory="1Gi", gpus=0), "me", now - HOUR) is not None
    assert store.rows("uid='u1'")[0].state.started == now


def test_a_lost_job_never_ends_before_it_began(tmp_path: Path) -> None:
    store, started = Store(Home(tmp_path)), time.time() + HOUR
    store.add(a_plan(), a_state(started=started), "{}", 0)
    recovery.declare_lost(store, store.rows("uid='u1'")[0])
    state = store.rows("uid='u1'")[0].state
    assert (state.phase, state.finished) == (Phase.FAILED, started)


@pytest.mark.parametrize(("set_back", "wait"), [(0.0, 10.0), (HOUR, 10.0), (-HOUR, None)])
def test_a_delayed_attempt_waits_no_longer_than_its_delay(
    tmp_path: Path, set_back: float, wait: float | None
) -> None:
    store, then = Store(Home(tmp_path)), 1_000_000.0
    store.add(a_plan(retry=Retry(limit=1, backoff_seconds=10.0)), a_state(), "{}", 0)
    store.put(a_state(attempt=2), not_before=then + 10.0)
    now = then - set_back
    assert scheduler.seconds_until_delayed(store, now) == wait
    due = now + (wait or 0.0)
    assert scheduler.can_start(store, due, Settings(cores=2, memory="1Gi", gpus=0))


@pytest.mark.parametrize(
    ("labels", "faults"),
    [
        ({"fault.mpijob/clock-back": "3600_0.5"}, (Fault("clock-back", 3600, 0.5),)),
        ({"fault.mpijob/kill-rank": "1"}, (Fault("kill-rank", 1, 0.0),)),
        ({"fault.mpijob/kill-rank": "-1"}, ()),
        ({"team": "cv"}, ()),
    ],
)
def test_faults_are_read_from_labels(labels: dict[str, str], faults: tuple[Fault, ...]) -> None:
    assert parse(labels) == faults


# -- reports ------------------------------------------------------------------------------------------
def test_only_reports_of_a_known_form_count(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report")
    reports = Reports(tmp_path / "report")
    assert list(reports.read()) == []
    lies = [b"run rm", b"hello", b"unreached a/../b missing", b"unreached x eaten", b"bye 0 x", b"x" * 300]
    os.write(reports.fd, b"\n".join((b"ready 0", *lies, b"unreached job-worker-1 refused", b"hel")) + b"")
    assert list(reports.read()) == [("ready", ["0"]), ("unreached", ["job-worker-1", "refused"])]
    os.write(reports.fd, b"lo 1 2 1 0 77 \n")
    assert list(reports.read()) == [("hello", ["1", "2", "1", "0", "77", ""])]


# -- causes -------------------------------------------------------------------------------------------
def an_attempt(home: Path, family: Family = Family.MPICH) -> tuple[AttemptSpec, AttemptState]:
    """Return an attempt whose two ranks, on two workers, run."""
    orders = AttemptSpec(Home(home), "u1", 1, a_plan(family=family), ())
    orders.logs.mkdir(parents=True)
    orders.work.mkdir(parents=True)
    ledger = AttemptState(orders.plan, 100.0)
    for rank in range(2):
        ledger.rank_started(rank, 2, rank, 0, 70 + rank, "", "node")
    ledger.take_census()
    return orders, ledger


def concluded(orders: AttemptSpec, ledger: AttemptState) -> Finding:
    """Return the first finding about an attempt that is over."""
    standing = derive(ledger.observe(ended=True, ranks_watched=True))
    return findings_for(orders.diagnosis_input, ledger, standing)[0]


DAEMON_ENDS: dict[str, Callable[[AttemptState], object]] = {
    "by a signal": lambda ledger: ledger.daemon_ended(0, -int(signal.SIGPIPE)),
    "with 255": lambda ledger: ledger.daemon_ended(0, 255),
    "with 7": lambda ledger: ledger.daemon_ended(0, 7),
    "and takes its rank along": lambda ledger: _both_end(ledger),
}


def _both_end(ledger: AttemptState) -> None:
    ledger.rank_lost(0)
    ledger.daemon_ended(0, 7)


@pytest.mark.parametrize("first", ["daemon", "launcher", "together"])
@pytest.mark.parametrize("end", DAEMON_ENDS)
def test_a_daemon_that_ends_after_an_aborted_start_is_no_cause(tmp_path: Path, end: str, first: str) -> None:
    orders = AttemptSpec(Home(tmp_path), "u1", 1, a_plan(), ())
    orders.logs.mkdir(parents=True)
    orders.work.mkdir(parents=True)
    ledger = AttemptState(orders.plan, 100.0)
    ledger.launcher_started = True
    ledger.ready = {0, 1}
    ledger.rank_started(0, 2, 0, 0, 77, "", "node")
    ledger.unreached.add("job-worker-1")
    LogFile(orders.logs / "launcher.log", lambda: int(100.02e9)).write_line(
        "mpijob-agent: cannot reach worker job-worker-1: No such file or directory"
    )
    steps: list[Callable[[], object]] = [lambda: DAEMON_ENDS[end](ledger), lambda: ledger.launcher_ended(255)]
    for step in reversed(steps) if first == "launcher" else steps:
        ledger.now += 0.0 if first == "together" else 0.01
        step()
    finding = concluded(orders, ledger)
    reason = derive(ledger.observe(ended=True, ranks_watched=True)).reason
    assert (reason, finding.code, finding.worker) == (Reason.LAUNCHER_FAILED, "UNKNOWN_HOST", 1)


def test_a_daemon_that_is_killed_while_every_worker_can_be_reached_is_a_cause(tmp_path: Path) -> None:
    orders = AttemptSpec(Home(tmp_path), "u1", 1, a_plan(), ())
    orders.logs.mkdir(parents=True)
    orders.work.mkdir(parents=True)
    ledger = AttemptState(orders.plan, 100.0)
    ledger.daemon_ended(0, -int(signal.SIGKILL))
    ledger.launcher_ended(255)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.worker) == ("DAEMON_LOST", 0)


def test_a_rank_that_the_kernel_killed_for_memory_is_named_so(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path)
    ledger.rank_exited(1, 137)
    ledger.oom_kills = {0: 0, 1: 1}
    finding = concluded(orders, ledger)
    assert (finding.code, finding.worker) == ("OOM_KILLED", 1)


def test_workers_whose_ranks_end_alike_by_themselves_have_all_failed(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path)
    for rank in range(2):
        LogFile(orders.logs / f"rank-{rank}.log").write_line("bash: line 1: gmx_mpi: command not found")
        ledger.rank_exited(rank, 127)
        ledger.now += 0.1
    assert concluded(orders, ledger).code == "MISSING_EXECUTABLE"
    assert [one.phase for one in ledger.worker_states(Phase.FAILED, lambda _: ())] == [Phase.FAILED] * 2


@pytest.mark.parametrize("code", [137, 143, 3], ids=["killed", "ended", "another code"])
def test_a_worker_whose_rank_ends_otherwise_has_not_failed_with_the_first(tmp_path: Path, code: int) -> None:
    orders, ledger = an_attempt(tmp_path)
    ledger.rank_exited(1, 127)
    ledger.now += 0.1
    ledger.rank_exited(0, code)
    concluded(orders, ledger)
    phases = [one.phase for one in ledger.worker_states(Phase.FAILED, lambda _: ())]
    assert phases == [Phase.CANCELLED, Phase.FAILED]


def test_a_rank_that_lost_its_peer_is_no_cause_even_when_it_is_seen_first(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path)
    LogFile(orders.logs / "launcher.log").write_line(
        "[job-worker-0:00000] *** An error occurred in Socket closed"
    )
    ledger.rank_exited(0, 14)
    ledger.now += 0.2
    ledger.rank_exited(1, 137)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.rank) == ("RANK_KILLED", 1)
    assert [state.followed for state in ledger.rank_states()] == [True, False]


HYDRA = (Family.MPICH, Family.INTEL)
ENDS = [
    # Open MPI's rank 0 notices at once that rank 1 was killed, and ends with 14; it never kills with 9 itself.
    *((Family.OPENMPI, ((0, 14, 0.0), (1, 137, apart)), "RANK_KILLED") for apart in (0.0, 0.1)),
    # hydra kills rank 0 with 9 because rank 1 has ended: seen together, or in the order in which it was.
    *((family, ((0, 137, 0.0), (1, 1, 0.0)), "RANK_EXIT") for family in HYDRA),
    *((family, ((1, 1, 0.0), (0, 137, 0.1)), "RANK_EXIT") for family in HYDRA),
    *((family, ((1, 137, 0.0), (0, 137, 0.0)), "RANK_KILLED") for family in HYDRA),
    *((family, ((0, 137, 0.0), (1, 139, 0.0)), "SEGFAULT") for family in HYDRA),
    (Family.OPENMPI, ((0, 143, 0.0), (1, 1, 0.0)), "RANK_EXIT"),
]


@pytest.mark.parametrize(("family", "ends", "code"), ENDS)
def test_of_ends_that_come_together_the_one_that_nobody_else_caused_is_the_cause(
    tmp_path: Path, family: Family, ends: tuple[tuple[int, int, float], ...], code: str
) -> None:
    orders, ledger = an_attempt(tmp_path, family)
    for rank, status, later in ends:
        ledger.now += later
        ledger.rank_exited(rank, status)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.rank, finding.worker) == (code, 1, 1)


@pytest.mark.parametrize("family", [Family.OPENMPI, *HYDRA])
def test_what_ends_with_a_killed_launcher_is_no_cause_and_names_no_worker(
    tmp_path: Path, family: Family
) -> None:
    orders, ledger = an_attempt(tmp_path, family)
    ledger.rank_exited(0, 137)
    ledger.daemon_ended(1, 7)
    ledger.now += 0.1
    ledger.launcher_ended(-int(signal.SIGKILL))
    ledger.rank_exited(1, 14)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.worker, finding.rank) == ("LAUNCHER_KILLED", None, None)


def test_a_daemon_that_noticed_it_first_is_not_told_before_the_killed_launcher(tmp_path: Path) -> None:
    _, ledger = an_attempt(tmp_path)
    ledger.daemon_ended(1, 7)
    ledger.now += 0.1
    ledger.launcher_ended(-int(signal.SIGKILL))
    ledger.rank_exited(0, 137)
    standing = failure(ledger.observe(ended=False, ranks_watched=True))
    assert standing is not None
    assert standing.reason is Reason.LAUNCHER_FAILED


def test_a_launcher_that_we_killed_ourselves_changes_no_cause(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path)
    ledger.rank_exited(1, 3)
    ledger.now += 0.2
    ledger.ending = True
    ledger.launcher_ended(-int(signal.SIGKILL))
    ledger.rank_exited(0, 137)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.rank) == ("RANK_EXIT", 1)


def test_a_lost_daemon_is_on_its_own_worker_whatever_ended_elsewhere(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path, Family.OPENMPI)
    ledger.daemon_ended(1, 137)
    ledger.launcher_ended(137)
    ledger.now += 0.2
    ledger.rank_exited(0, 143)
    ledger.ending = True
    for worker in range(2):
        ledger.worker_lost(worker, 0)
    finding = concluded(orders, ledger)
    assert (finding.code, finding.worker, finding.rank) == ("DAEMON_LOST", 1, None)
    assert [state.followed for state in ledger.rank_states()] == [True, False]


def test_a_rank_that_told_its_end_is_the_cause_and_mpis_own_words_are_not(tmp_path: Path) -> None:
    orders, ledger = an_attempt(tmp_path)
    LogFile(orders.logs / "rank-1.log").write_line(
        "Abort(3) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1"
    )
    ledger.rank_exited(0, 137)
    ledger.rank_aborting(1, 3)
    ledger.rank_aborting(7, 3)  # there is no such rank
    ledger.rank_exited(1, 137)
    finding = concluded(orders, ledger)
    message = derive(ledger.observe(ended=True, ranks_watched=True)).message
    assert (finding.code, finding.rank, message) == ("RANK_EXIT", 1, "rank 1 exited with 3")
    assert [(state.exit_code, state.followed) for state in ledger.rank_states()] == [(137, True), (3, False)]


_ABORT = "Abort(338314127) on node 0 (rank 0 in comm 0): Fatal error in internal_Init: Other MPI error, error stack:"
_NO_PROVIDER = (
    "find_provider(3064): OFI fi_getinfo() failed (ofi_init.c:3064:find_provider:No data available)"
)
_PEER_ENDED = "MPIDI_CH4I_progress(91): Connection reset by peer"


@pytest.mark.parametrize(
    ("reason", "code"), [(_NO_PROVIDER, "FABRIC_FAILED"), (_PEER_ENDED, "RANK_KILLED")], ids=["own", "peer"]
)
def test_ranks_that_hydra_kills_after_an_abort_of_one_were_killed_by_nobody_else(
    tmp_path: Path, reason: str, code: str
) -> None:
    orders, ledger = an_attempt(tmp_path)
    for line in (_ABORT, reason):
        LogFile(orders.logs / "rank-0.log").write_line(line)
    ledger.rank_exited(1, 137)
    ledger.rank_exited(0, 137)
    assert concluded(orders, ledger).code == code


# -- warnings -----------------------------------------------------------------------------------------
@pytest.mark.req("PMV-013")
@pytest.mark.parametrize(("seconds", "looks"), [(0.0, False), (120.0, True)])
def test_a_watchman_looks_only_where_warnings_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, looks: bool
) -> None:
    orders, ledger = an_attempt(tmp_path)
    orders.settings = Settings(warn_after_seconds=seconds)
    watchman = HealthMonitor(orders, ledger, 0)
    assert not watchman.is_due()
    later = time.monotonic() + HOUR
    monkeypatch.setattr("mpijob.backends.local.supervisor.health_monitor.time.monotonic", lambda: later)
    assert watchman.is_due() is looks


@pytest.mark.parametrize(
    ("said", "code", "signal"),
    [(127, 127, None), (128, 128, None), (139, None, 11), (192, None, 64), (255, 255, None)],
)
def test_only_what_is_the_number_of_a_signal_is_one(
    tmp_path: Path, said: int, code: int | None, signal: int | None
) -> None:
    _, ledger = an_attempt(tmp_path)
    ledger.rank_exited(0, said)
    (exit,) = ledger.ranks_ended()
    assert (exit.code, exit.signal) == (code, signal)
    assert not exit.good


# -- silence ------------------------------------------------------------------------------------------
def late_with(home: Path, said: Iterable[tuple[float, str, bytes]]) -> str:
    """Return what is told of an attempt that its deadline ended after 20 s, with what rank 0 said, and when."""
    orders, ledger = an_attempt(home)
    job = orders.plan.job.replace(deadline_seconds=20.0)
    orders.plan = msgspec.structs.replace(orders.plan, job=job)
    now = 0.0
    log = LogFile(orders.logs / "rank-0.log", lambda: int((100.0 + now) * 1e9))
    for now, stream, data in said:  # noqa: B007 - the log's clock reads it
        log.feed(stream, data)
    for stream in ("stdout", "stderr"):
        log.finish(stream)
    log.close()
    standing = PhaseResult(Phase.FAILED, Reason.DEADLINE_EXCEEDED, "late")
    return findings_for(orders.diagnosis_input, ledger, standing, started=100.0)[0].message


SILENT = "no rank had written output in the last"


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        ([(1.0, "stdout", b"begun\n"), (20.5, "stderr", b"ended\n")], True),
        ([(step / 2, "stdout", b".") for step in range(1, 42)], False),  # one line, with the time of its end
        (
            [(float(step), "stdout", b"step\n") for step in range(1, 20)]
            + [(20.5, stream, b"bye\n") for stream in ("stdout", "stderr") for _ in range(35)],
            False,  # more than is read of a log was said in its last words
        ),
    ],
    ids=["silent", "dots", "many-last-words"],
)
def test_ranks_that_spoke_until_their_deadline_are_not_called_silent(
    tmp_path: Path, said: list[tuple[float, str, bytes]], silent: bool
) -> None:
    assert (SILENT in late_with(tmp_path, said)) is silent
