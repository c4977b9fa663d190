"""The port over Slurm's commands: what each call answers for jobs of ours, of plain sbatch, and of nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.slurm_support import (
    BEGIN,
    NUMBER,
    UID,
    FakeHost,
    Submitted,
    a_job,
    a_plan,
    ended,
    sacct,
    squeue,
)

from mpijob.backends import cancellable_sleep
from mpijob.backends.slurm.backend import SlurmBackend
from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs import plain_jobs
from mpijob.errors import BackendError, Conflict, InvalidJob, MpiJobError, NotFound, Unsupported
from mpijob.formats.slurm import batch_script
from mpijob.model import Family, JobRef, Launch, LogQuery, MPIJob, Phase, Scope
from mpijob.model.spec.job import Code, CustomLaunch
from mpijob.model.status.accounts import AccountQuery
from mpijob.settings import Settings

PLAIN = plain_jobs.ref(ended(jobidraw="50", jobname="relax"))
NOBODY = JobRef("default", "nobody")
SILENT = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
OURS = {"%k": batch_script.comment(a_job(), UID, "mpich 4.1")}
RELAX = {"%A": "50", "%j": "relax"}
SCRIPT = "#!/bin/sh\n#SBATCH --nodes=2\nsrun ./relax\n"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root", squeue=squeue(OURS, RELAX), sacct="", scontrol="", scancel="")


@pytest.fixture
def backend(host: FakeHost, tmp_path: Path) -> SlurmBackend:
    backend = SlurmBackend(Settings(home=str(tmp_path / "home")), "slurm")
    backend.__dict__["_host"] = host
    return backend


@pytest.fixture
def job(host: FakeHost) -> Submitted:
    job = Submitted(host)
    job.began()
    return job


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return what happens in each pause, in this order; after that nobody may wait any more."""
    plans: list[Callable[[], None]] = []

    def pause(seconds: float) -> None:
        plans.pop(0)()

    monkeypatch.setattr(cancellable_sleep, "sleep", pause)
    return plans


# -- where ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("place", "name", "partition", "address"),
    [
        ("slurm", "slurm", "", ""),
        ("slurm:gpu", "slurm", "gpu", ""),
        ("slurm+ssh://login", "slurm-login", "", "login"),
        ("slurm+ssh://alice@login.site:2222/gpu", "slurm-login.site", "gpu", "alice@login.site:2222"),
    ],
)
def test_a_place_names_the_login_node_and_the_partition(
    place: str, name: str, partition: str, address: str
) -> None:
    found = SlurmBackend(Settings(), place)
    assert (found.name, found._partition, found._address) == (name, partition, address)


def test_a_backend_that_was_not_used_closes_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    backend = SlurmBackend(Settings(), "slurm+ssh://login")
    backend.close()
    assert "_host" not in backend.__dict__


def test_a_connection_that_is_lost_is_closed_all_the_same(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[FakeHost] = []

    def lost(self: FakeHost) -> None:
        tried.append(self)
        raise BackendError("no connection", passing=True)

    monkeypatch.setattr(FakeHost, "close", lost)
    backend.close()
    assert tried == [backend._host]


# -- before --------------------------------------------------------------------------------------
PARTITION = "PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP TotalCPUs=16 TotalNodes=4\n"
STARTS = (
    "sbatch: Job 62 to start at 2020-01-01T00:00:00 using 2 processors on nodes n[1-2] in partition main\n"
)


@pytest.fixture
def batch(host: FakeHost, tmp_path: Path) -> MPIJob:
    """Return a script, whatever MPI this machine has; Slurm answers what a submit asks."""
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#SBATCH --nodes=2\nsrun ./solve\n")
    host.replies["scontrol"] = lambda argv: PARTITION if "partition" in argv else ""
    host.replies["env"] = lambda argv: Answer(0, "", STARTS) if "--test-only" in argv else "71\n"
    own = Launch(custom=CustomLaunch(command=("./start",)))
    code = Code(path=str(tmp_path))
    return a_job(name="batch", command=(), script="run.sh", code=code, mpi=Family.CUSTOM, launch=own)


def judged(host: FakeHost) -> int:
    return sum("--test-only" in argv for argv in host.asked)


def test_a_plan_asks_when_slurm_would_start_it_and_a_submit_loses_no_time_on_that(
    backend: SlurmBackend, host: FakeHost, batch: MPIJob
) -> None:
    found = backend.preflight(batch, backend.whoami())
    assert found.facts.place == "Slurm partition main"
    assert backend.plan(batch, found).engine == "slurm"
    assert judged(host) == 1
    backend.prewarm()
    ref = backend.submit(backend.plan(batch, found), backend.whoami())
    assert (backend.submitted_plan(ref) is not None, judged(host)) == (True, 1)
    backend.plan(batch, found)
    assert judged(host) == 2, "after a submit, a plan is a plan again"


def test_a_rehearsal_is_slurms_own_judgement_and_submits_nothing(
    backend: SlurmBackend, host: FakeHost, batch: MPIJob
) -> None:
    backend.prewarm()
    plan = backend.plan(batch, backend.preflight(batch, backend.whoami()))
    assert ["Slurm accepts the job" in one.message for one in backend.server_dry_run(plan)] == [True]
    assert (judged(host), host.count("env")) == (1, 1)
    with pytest.raises(NotFound):
        backend.get(JobRef("default", "batch"))


def test_the_user_is_the_one_of_the_login_node(host: FakeHost) -> None:
    far = SlurmBackend(Settings(), "slurm+ssh://root@login")
    far.__dict__["_host"] = host
    assert far.whoami().user == "alice"


# -- what is known -------------------------------------------------------------------------------
def test_a_job_of_ours_is_told_from_its_own_files(backend: SlurmBackend, job: Submitted) -> None:
    assert backend.spec(job.ref) == job.plan.job
    assert backend.submitted_plan(job.ref) == job.plan
    assert backend.get(JobRef("default", "solve")).ref == job.ref
    assert backend.get(job.ref).phase is Phase.RUNNING
    assert backend.samples(job.ref) == ()
    assert backend.mpi_profile(job.ref).ranks == ()


def test_a_job_of_plain_sbatch_is_told_by_slurm(backend: SlurmBackend, host: FakeHost) -> None:
    host.replies["scontrol"] = lambda argv: SCRIPT if "batch_script" in argv else ""
    spec = backend.spec(PLAIN)
    assert (spec.name, spec.workers, spec.slots) == ("relax-50", 2, 2)
    assert backend.get(JobRef("default", "50")).ref == PLAIN
    assert backend.submitted_plan(PLAIN) is None
    assert backend.samples(PLAIN) == ()
    assert backend.mpi_profile(PLAIN).ranks == ()
    assert [*backend.events(PLAIN)] == []


CALLS: dict[str, Callable[[SlurmBackend], object]] = {
    "spec": lambda backend: backend.spec(NOBODY),
    "planned": lambda backend: backend.submitted_plan(NOBODY),
    "get": lambda backend: backend.get(NOBODY),
    "attempts": lambda backend: backend.attempts(NOBODY),
    "logs": lambda backend: [*backend.logs(NOBODY, LogQuery())],
    "events": lambda backend: [*backend.events(NOBODY, follow=True)],
    "samples": lambda backend: backend.samples(NOBODY),
    "profile": lambda backend: backend.mpi_profile(NOBODY),
    "warnings": lambda backend: backend.warnings(NOBODY),
    "cancel": lambda backend: backend.cancel(NOBODY),
    "suspend": lambda backend: backend.suspend(NOBODY),
    "resume": lambda backend: backend.resume(NOBODY),
    "scale": lambda backend: backend.scale(NOBODY, 3),
    "delete": lambda backend: backend.delete(NOBODY),
    "execute": lambda backend: backend.execute(NOBODY, ("true",), worker=None, rank=None),
    "stacks": lambda backend: backend.stacks(NOBODY),
    "artifacts": lambda backend: backend.artifacts(NOBODY),
    "fetch": lambda backend: backend.fetch(NOBODY, "x", Path("x")),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_that_a_job_is_not_there(backend: SlurmBackend, host: FakeHost, call: str) -> None:
    with pytest.raises(NotFound, match="'nobody'"):
        CALLS[call](backend)
    assert not [argv for argv in host.asked if argv[0] in ("scancel", "srun")]


@pytest.mark.security
@pytest.mark.parametrize(
    "uid", ["../../etc", "/etc", "slurm-", "slurm-x", "slurm-50;id", "0123456789abcde", "."]
)
def test_a_uid_that_nobody_has_finds_nothing(backend: SlurmBackend, job: Submitted, uid: str) -> None:
    with pytest.raises(NotFound):
        backend.get(JobRef("default", "", uid))


def test_a_job_whose_plan_is_damaged_says_so_and_hides_no_other(
    backend: SlurmBackend, host: FakeHost, job: Submitted
) -> None:
    cut = Submitted(host, a_plan(a_job(name="cut"), uid="cc"), "68")
    (cut.path / "plan.json").write_bytes(b'{"job":{')
    with pytest.raises(BackendError, match=r"plan\.json"):
        backend.get(cut.ref)
    states = {state.ref.name: state for state in backend.list(Scope()).items}
    assert states.keys() == {"solve", "cut", "relax-50"}
    assert (states["cut"].phase, states["solve"].phase) == (Phase.FAILED, Phase.RUNNING)
    assert "plan.json" in states["cut"].message


def test_a_job_that_is_being_deleted_is_listed_as_that(backend: SlurmBackend, job: Submitted) -> None:
    (job.path / "plan.json").unlink()
    states = {state.ref.name: state.phase for state in backend.list(Scope()).items}
    assert states == {"solve": Phase.DELETING, "relax-50": Phase.RUNNING}
    with pytest.raises(NotFound, match="'solve'"):
        backend.get(job.ref)


@pytest.mark.parametrize(
    ("since", "phase"),
    [
        (lambda job: (job.began(), job.left(0, 0)), Phase.SUCCEEDED),
        (lambda job: job.acted("suspended", at=5), Phase.SUSPENDED),
    ],
    ids=["ended", "suspended"],
)
def test_a_list_says_of_a_job_what_happened_since_slurm_said_that_it_waits(
    backend: SlurmBackend, host: FakeHost, since: Callable[[Submitted], object], phase: Phase
) -> None:
    wanted = a_job(description="good")
    told = batch_script.comment(wanted, UID, "mpich 4.1")
    waits = {"%T": "PENDING", "%r": "Priority", "%N": "", "%S": "N/A"}
    host.replies["squeue"] = squeue({**OURS, **waits, "%k": told})
    job = Submitted(host, a_plan(wanted))
    assert [(one.phase, one.description) for one in backend.list(Scope()).items] == [(Phase.QUEUED, "good")]
    since(job)
    (state,) = backend.list(Scope()).items
    assert (state.phase, state.description) == (phase, "good")
    assert host.count("squeue") == 1, "what it said is not old yet"


def test_a_list_says_for_which_job_another_waits(backend: SlurmBackend, host: FakeHost) -> None:
    wanted = a_job(name="later", after=("relax-50",))
    told = batch_script.comment(wanted, "dd", "")
    Submitted(host, a_plan(wanted, uid="dd", waits_for=(PLAIN,)), "70")
    waits = {"%A": "70", "%T": "PENDING", "%r": "Dependency", "%N": "", "%S": "N/A", "%k": told}
    host.replies["squeue"] = squeue(RELAX, waits)
    (state,) = backend.list(Scope(names=("later",))).items
    assert (state.reason, "relax-50" in state.waiting_for) == ("WaitingForJobs", True)


def test_where_slurm_is_silent_a_list_has_what_the_nodes_wrote_and_a_notice(
    backend: SlurmBackend, host: FakeHost, job: Submitted
) -> None:
    host.replies["squeue"] = SILENT
    page = backend.list(Scope())
    assert [(state.ref.name, state.phase) for state in page.items] == [("solve", Phase.RUNNING)]
    assert [one.code for one in page.notices] == ["SLURM_UNREACHABLE"]
    with pytest.raises(BackendError, match="not responding"):
        backend.get(PLAIN)


def test_pages_follow_each_other_without_a_gap(backend: SlurmBackend, host: FakeHost, job: Submitted) -> None:
    for at in range(3):
        Submitted(host, a_plan(a_job(name=f"job{at}"), uid=f"a{at}"), str(60 + at), BEGIN + 1 + at)
    first = backend.list(Scope(limit=2))
    second = backend.list(Scope(limit=2, after=first.after))
    third = backend.list(Scope(limit=2, after=second.after))
    names = [[state.ref.name for state in page.items] for page in (first, second, third)]
    assert names == [["job2", "job1"], ["job0", "relax-50"], ["solve"]]
    assert (first.total, third.after) == (5, "")


def test_a_page_that_no_page_before_gave_is_refused_even_without_jobs(
    backend: SlurmBackend, host: FakeHost
) -> None:
    host.replies["squeue"] = ""
    with pytest.raises(InvalidJob, match="'abc' is not a valid continue token"):
        backend.list(Scope(after="abc"))


def test_a_job_that_waits_for_one_of_plain_sbatch_waits_as_long_as_that_runs(
    backend: SlurmBackend, host: FakeHost
) -> None:
    after = a_job(name="later", after=("relax-50",))
    job = Submitted(host, a_plan(after, uid="dd", waits_for=(PLAIN,)), "70")
    waits = {"%A": "70", "%T": "PENDING", "%r": "Dependency", "%N": "", "%S": "N/A"}
    host.replies["squeue"] = squeue(RELAX, waits)
    state = backend.get(job.ref)
    assert (state.phase, state.reason) == (Phase.QUEUED, "WaitingForJobs")
    assert "relax-50" in state.waiting_for


# -- following -----------------------------------------------------------------------------------
def test_watching_tells_each_change_once_and_bears_silence(
    backend: SlurmBackend, host: FakeHost, job: Submitted, pauses: list[Callable[[], None]]
) -> None:
    answers: Iterator[BackendError | None] = iter([None, BackendError("no connection", passing=True), None])
    listed = backend._reader.page

    def page(scope: Scope) -> object:
        if (error := next(answers, None)) is not None:
            raise error
        return listed(scope)

    backend._reader.page = page  # type: ignore[method-assign,assignment]  # a connection that is lost for a moment
    pauses += [lambda: None, lambda: job.left(0, 0)]
    watched = backend.watch(Scope(names=("solve",)))
    assert next(watched).phase is Phase.RUNNING
    assert next(watched).phase is Phase.SUCCEEDED
    assert pauses == []


def test_a_watch_ends_with_what_does_not_pass(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(scope: Scope) -> object:
        raise BackendError("there is no program 'squeue' here")

    monkeypatch.setattr(backend._reader, "page", refused)
    with pytest.raises(BackendError, match="squeue"):
        next(backend.watch(Scope()))


def test_events_are_followed_to_the_jobs_end(
    backend: SlurmBackend, job: Submitted, pauses: list[Callable[[], None]]
) -> None:
    pauses += [lambda: None, lambda: job.left(0, 0)]
    reasons = [event.reason for event in backend.events(job.ref, follow=True)]
    assert reasons == ["Submitted", "GangScheduled", "WorkersReady", "WorldProved", "Running", "Succeeded"]


def test_events_of_a_job_that_is_deleted_meanwhile_end(
    backend: SlurmBackend, job: Submitted, pauses: list[Callable[[], None]]
) -> None:
    pauses.append(lambda: backend._reader.jobs.remove(job.place))
    assert [event.reason for event in backend.events(job.ref, follow=True)][-1] == "Running"


def test_logs_of_a_command_are_its_ranks_and_of_a_script_its_output(
    backend: SlurmBackend, host: FakeHost, job: Submitted, tmp_path: Path
) -> None:
    (job.path / "a1" / "logs").mkdir()
    (job.path / "a1" / "logs" / "rank-0.log").write_bytes(b"2025-11-17T17:20:06.000000000Z stdout F ranks\n")
    assert [line.text for line in backend.logs(job.ref, LogQuery())] == [b"ranks"]
    script = Submitted(host, a_plan(a_job(name="batch", command=(), script="run.sh"), uid="ee"), "71")
    host.replies["squeue"] = squeue({"%A": "71"}, RELAX)
    (tmp_path / "out").write_text("script\n")
    (script.path / "output.json").write_bytes(msgspec.json.encode({"StdOut": str(tmp_path / "out")}))
    assert [line.text for line in backend.logs(script.ref, LogQuery())] == [b"script"]
    host.replies["scontrol"] = f"JobId=50 StdErr={tmp_path}/plain StdOut={tmp_path}/plain\n"
    (tmp_path / "plain").write_text("plain\n")
    assert [line.text for line in backend.logs(PLAIN, LogQuery())] == [b"plain"]


# -- acting --------------------------------------------------------------------------------------
def test_a_job_of_plain_sbatch_is_cancelled_by_its_number(backend: SlurmBackend, host: FakeHost) -> None:
    def gone(argv: object) -> str:
        host.replies["squeue"] = squeue({**RELAX, "%T": "CANCELLED", "%e": f"{BEGIN + 9:.0f}"})
        return ""

    host.replies["scancel"] = gone
    assert backend.cancel(PLAIN).phase is Phase.CANCELLED
    assert [argv for argv in host.asked if argv[0] == "scancel"] == [("scancel", "50")]


def test_deleting_a_job_of_plain_sbatch_cancels_it_and_leaves_its_files(
    backend: SlurmBackend, host: FakeHost, job: Submitted
) -> None:
    host.replies["squeue"] = squeue({**RELAX, "%T": "COMPLETED", "%e": f"{BEGIN + 9:.0f}"})
    backend.delete(PLAIN)
    assert host.count("scancel") == 1
    assert job.path.is_dir()


def test_a_job_is_not_scaled_and_the_way_to_another_size_is_told(
    backend: SlurmBackend, job: Submitted
) -> None:
    with pytest.raises(Unsupported, match="'solve' runs on Slurm") as caught:
        backend.scale(job.ref, 5)
    assert "mpijob clone solve --workers 5" in caught.value.hint


def test_a_command_goes_into_the_jobs_working_directory_or_stays_where_a_script_is(
    backend: SlurmBackend, host: FakeHost, job: Submitted
) -> None:
    assert backend.execute(job.ref, ("ls",), worker=1, rank=None) == 7
    assert {f"--jobid={NUMBER}", "--nodelist=n2", f"--chdir={job.path}/work"} <= {*host.terminals[0]}
    assert backend.execute(PLAIN, ("ls",), worker=0, rank=None) == 7
    assert "--jobid=50" in host.terminals[1]
    assert not [word for word in host.terminals[1] if word.startswith("--chdir")]
    job.left(0, 0)
    with pytest.raises(Conflict):
        backend.execute(job.ref, ("ls",), worker=1, rank=None)
    assert len(host.terminals) == 2


def test_a_job_that_can_never_start_is_warned_of(
    backend: SlurmBackend, host: FakeHost, job: Submitted
) -> None:
    assert backend.warnings(job.ref) == ()
    never = {**RELAX, "%T": "PENDING", "%r": "PartitionTimeLimit", "%N": "", "%S": "N/A"}
    host.replies["squeue"] = squeue(never)
    again = SlurmBackend(Settings(home=str(host.root / "other")), "slurm")
    again.__dict__["_host"] = host
    assert [one.code for one in again.warnings(PLAIN)] == ["SLURM_NEVER_STARTS"]


# -- files ---------------------------------------------------------------------------------------
def test_artifacts_are_what_the_job_wrote_and_not_what_went_along(
    backend: SlurmBackend, job: Submitted
) -> None:
    work = job.path / "work"
    work.mkdir()
    for name in ("along", "result"):
        (work / name).write_text(name)
    about = (work / "along").stat()
    (job.path / "along.json").write_bytes(msgspec.json.encode({"along": (about.st_size, about.st_mtime_ns)}))
    assert backend.working_directory(job.ref) == work
    assert [one.path for one in backend.artifacts(job.ref)] == ["result"]
    (job.path / "along.json").write_bytes(b'{"along":')
    assert [one.path for one in backend.artifacts(job.ref)] == ["along", "result"], (
        "what went along is not known"
    )


def test_of_a_script_in_a_directory_of_the_users_only_new_files_are_artifacts(
    backend: SlurmBackend, host: FakeHost, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    (folder / "home").mkdir(parents=True)
    for name in ("run.sh", "result", "home/state"):
        (folder / name).write_text(name)
    plan = a_plan(a_job(command=(), script="run.sh", code=Code(path=str(folder))))
    job = Submitted(host, plan)
    backend._settings = Settings(home=str(folder / "home"))
    assert backend.working_directory(job.ref) == folder
    assert backend.artifacts(job.ref) == (), "which of these files are new is not known"
    about = (folder / "run.sh").stat()
    (job.path / "along.json").write_bytes(msgspec.json.encode({"run.sh": (about.st_size, about.st_mtime_ns)}))
    assert [one.path for one in backend.artifacts(job.ref)] == ["result"]


@pytest.mark.security
@pytest.mark.parametrize("path", ["../plan.json", "/etc/passwd", "link", "", "\0", "missing"])
def test_only_files_of_the_working_directory_are_fetched(
    backend: SlurmBackend, job: Submitted, tmp_path: Path, path: str
) -> None:
    (job.path / "work").mkdir()
    (job.path / "work" / "link").symlink_to("/etc/passwd")
    with pytest.raises(MpiJobError):
        backend.fetch(job.ref, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_accounts_past_and_schedules_are_those_of_this_cluster(
    backend: SlurmBackend, host: FakeHost, tmp_path: Path
) -> None:
    host.replies["sacct"] = sacct({"jobidraw": "52", "jobname": "old"})
    assert sorted(one.ref.name for one in backend.accounts(AccountQuery())) == ["old-52", "relax-50"]
    assert backend.history() is None
    assert [*backend.schedules().all("")] == []
