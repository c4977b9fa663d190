"""The blocking client: namespaces, waiting, bulk, comparing, showing; no event loop where none is needed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from mpijob import AsyncClient, Client, Job, JobFailed, MPIJob, Phase
from mpijob.backends import cancellable_sleep
from mpijob.backends.attempts import log_reader
from mpijob.backends.kubernetes.status import watch_jobs
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.backends.protocol import Backend
from mpijob.client import threads
from mpijob.client.base import open_backend
from mpijob.errors import Conflict, InvalidJob, Severity
from mpijob.model import JobState, LogQuery, Resources, Scope
from mpijob.settings import Settings


def a_client(**options: object) -> Client:
    return Client(MemoryBackend(), settings=Settings(), **options)  # type: ignore[arg-type]  # passed through


def a_job(name: str = "job", **fields: object) -> MPIJob:
    return MPIJob(**{"name": name, "workers": 2, "command": ("echo", "hi"), **fields})  # type: ignore[arg-type]  # builder


@pytest.mark.req("FR-008", "SC-001")
def test_a_first_job_takes_less_than_ten_lines() -> None:
    client = a_client()
    job = client.run(MPIJob(name="first", workers=2, command=("echo", "hello")))
    assert [line.text for line in job.logs()] == [b"hello", b"hello"]


@pytest.mark.thorough
def test_listing_jobs_does_not_load_an_event_loop_or_the_checks() -> None:
    code = (
        "import sys; from mpijob import Client; from mpijob.backends.memory import MemoryBackend;"
        "heavy = ('asyncio', 'difflib', 'mpijob.checks', 'yaml');"
        "print(Client(MemoryBackend()).list().total, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


@pytest.mark.thorough
def test_submitting_and_waiting_do_not_load_an_event_loop() -> None:
    code = (
        "import sys; from mpijob import Client, MPIJob; from mpijob.backends.memory import MemoryBackend;"
        "c = Client(MemoryBackend()); j = c.run(MPIJob(name='a', workers=2, command=('echo', 'x')));"
        "print(len(list(j.logs(follow=True))), len(list(j.events())) > 3, 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 True False\n"


@pytest.mark.parametrize("asked", ["fit", "advise", "estimate", "plan"])
def test_a_question_about_a_job_that_contradicts_itself_is_refused_as_its_submission_is(asked: str) -> None:
    with pytest.raises(InvalidJob, match="'4GB' is not an amount"):
        getattr(a_client(), asked)(a_job(resources=Resources(memory="4GB")))


@pytest.mark.req("FR-012", "FR-SDK-002")
def test_a_job_that_contradicts_itself_is_refused_before_anything_is_asked() -> None:
    client = a_client()
    with pytest.raises(InvalidJob) as caught:
        client.submit(MPIJob(name="Bad Name!", workers=0, command=()))
    assert {finding.field for finding in caught.value.findings} >= {"name", "workers"}
    assert client.list().total == 0


def test_remarks_that_do_not_stop_a_job_are_in_the_plan() -> None:
    plan = a_client().plan(a_job(workers=1))
    assert [finding.severity for finding in plan.notices if finding.field == "workers"] == [Severity.WARNING]


def test_words_given_as_text_become_values() -> None:
    job = a_client().submit(MPIJob(name="a", workers=2, command=["true"], mpi="openmpi"))  # type: ignore[arg-type]  # as users write it
    assert job.spec.mpi.value == "openmpi"


def test_a_job_without_a_namespace_goes_to_the_clients() -> None:
    client = a_client(namespace="team-cv")
    assert client.submit(a_job()).namespace == "team-cv"
    assert client.submit(a_job(namespace="other")).namespace == "other"
    assert [state.ref.namespace for state in client.list().items] == ["team-cv"]


def test_the_settings_name_the_namespace() -> None:
    client = Client(MemoryBackend(), settings=Settings(namespace="nlp"))
    assert client.submit(a_job()).namespace == "nlp"


def test_waiting_for_a_phase_that_was_passed_returns_the_end() -> None:
    client = a_client()
    client.run(a_job())
    assert client.wait("job", 5, {Phase.RUNNING}).phase is Phase.SUCCEEDED
    with pytest.raises(Conflict, match="Suspended"):
        client.wait("job", 5, {Phase.SUSPENDED})


def test_the_first_cause_and_the_next_step_are_in_the_error() -> None:
    client = Client(MemoryBackend(script=Script(default=Outcome(exit_code=9, worker=1))), settings=Settings())
    with pytest.raises(JobFailed) as caught:
        client.run(a_job())
    assert caught.value.message == "job 'job' failed: worker 1 failed: rank 1 ended with exit code 9"
    assert caught.value.hint == "show its log: mpijob logs job"
    assert client.why("job") == caught.value.findings


def test_bulk_verbs_want_to_know_which_jobs() -> None:
    client = a_client()
    client.submit(a_job())
    with pytest.raises(InvalidJob, match="every job"):
        client.delete_all()
    assert [done.ok for done in client.cancel_all(phases=["Pending", "Queued"])] == [True]
    assert [done.ref.name for done in client.delete_all(every=True)] == ["job"]


@pytest.mark.req("PMV-003")
def test_comparing_shows_only_what_differs_and_how_each_went() -> None:
    client = Client(MemoryBackend(script=Script(jobs={"b": Outcome(exit_code=1)})), settings=Settings())
    client.run(a_job("a", env={"LR": "0.1"}))
    client.submit(a_job("b", env={"LR": "0.2"}, resources=Resources(memory="4Gi"))).wait(60)
    found = client.compare("a", "b")
    assert {row.field: row.values for row in found.differences} == {
        "env.LR": ("0.1", "0.2"),
        "resources.memory": ("1Gi", "4Gi"),
    }
    assert [column.phase for column in found.jobs] == [Phase.SUCCEEDED, Phase.FAILED]
    assert all(column.duration_seconds for column in found.jobs)
    assert "exit code 1" in found.jobs[1].result


def test_comparing_needs_two_jobs() -> None:
    client = a_client()
    client.submit(a_job())
    with pytest.raises(InvalidJob, match="two"):
        client.compare("job")


@pytest.mark.req("B-export")
def test_an_exported_job_can_be_submitted_again() -> None:
    from mpijob.formats.jobfile import jobfile_reader

    client = a_client()
    job = client.submit(a_job(env={"LR": "0.1"}))
    assert jobfile_reader.read(job.export()) == job.spec
    assert jobfile_reader.read(job.export("json")) == job.spec


def test_a_clone_counts_on_from_its_name() -> None:
    client = a_client()
    client.submit(a_job("bert-2"))
    assert client.clone("bert-2").name == "bert-3"
    assert client.clone("bert-2").name == "bert-4"


def test_a_clone_with_an_unknown_field_is_refused_with_a_suggestion() -> None:
    client = a_client()
    client.submit(a_job())
    with pytest.raises(InvalidJob, match="did you mean 'workers'") as caught:
        client.clone("job", worker=3)
    assert "no field 'worker'" in caught.value.message
    with pytest.raises(InvalidJob, match=r"resources\.gpus"):
        client.clone("job", changes={"resources.gpus": 1})
    with pytest.raises(InvalidJob, match="keeps its name"):
        client.clone("job", "other", replace=True)


def test_an_array_is_checked_whole_before_the_first_job_starts() -> None:
    client = a_client()
    with pytest.raises(InvalidJob):
        client.array(a_job(), {"workers": [2, -1]})
    assert client.list().total == 0
    jobs = client.array(a_job(), {"workers": [2, 4], "env.LR": [0.1, 0.2]})
    assert [job.name for job in jobs] == ["job-0", "job-1", "job-2", "job-3"]


def test_an_engine_that_is_not_known_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidJob, match="'locl'") as caught:
        open_backend(Settings(engine="locl"))
    assert "did you mean 'local'? allowed: local, kubernetes, slurm, memory" in caught.value.hint
    assert open_backend(Settings(engine="memory")).name == "memory"


@pytest.mark.security
def test_html_of_a_job_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    client = Client(MemoryBackend(script=Script(default=Outcome(exit_code=1))), settings=Settings())
    job = client.submit(a_job())
    job.wait(60)
    job.last = JobState(ref=job.ref, phase=Phase.FAILED, message=evil, findings=job.last.findings)
    job.delete()  # shown as it was last seen
    shown = job._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "rank 0 ended with exit code 1" in shown


@pytest.mark.thorough
def test_a_widget_follows_the_job_to_its_end() -> None:
    import threading

    job = a_client().submit(a_job())
    view = job.widget()
    for thread in threading.enumerate():
        if thread.name == "mpijob-widget":
            thread.join(20)
    assert "Succeeded" in view.value


def test_without_ipywidgets_a_widget_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    job = a_client().run(a_job())
    assert job.widget() == "default/job Succeeded, workers 2/2 Succeeded: all 2 ranks exited with 0"


@pytest.mark.req("FR-SDK-003")
def test_blocking_calls_work_inside_a_running_loop() -> None:
    async def notebook_cell() -> Phase:
        with a_client() as client:
            job = client.run(a_job())
            assert len(list(job.logs(follow=True))) == 2
            return job.phase

    assert asyncio.run(notebook_cell()) is Phase.SUCCEEDED


def test_a_closed_stream_of_a_silent_job_leaves_no_thread() -> None:
    async def opened_and_closed() -> None:
        lines = threads.stream_in_thread(
            lambda: log_reader.follow(lambda: ((), {}, False), LogQuery(follow=True), paused)
        )
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await lines.aclose()

    def paused(seconds: float) -> None:
        cancellable_sleep.sleep(600.0)

    asyncio.run(opened_and_closed())
    left = [thread for thread in threading.enumerate() if thread.name == "mpijob-stream"]
    for thread in left:
        thread.join(20)
    assert not [thread for thread in left if thread.is_alive()]


def test_a_silent_watch_of_a_cluster_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, stopped, ended = threading.Event(), threading.Event(), threading.Event()

    class Silent:
        def __init__(self, *told: object) -> None:
            self.close = closed.set

        def wait(self) -> None:
            assert not stopped.is_set(), "it was looked at again after its reader had left"
            stopped.set()

    def read() -> None:
        cancellable_sleep.set_stop_event(stopped)
        with contextlib.suppress(cancellable_sleep.StreamCancelled):
            list(watch_jobs.changes(cast("Any", None), Scope(), frozenset(), cast("Any", None)))
        ended.set()

    monkeypatch.setattr(watch_jobs, "Watcher", Silent)
    monkeypatch.setattr(watch_jobs, "_read_states", lambda *told: ())
    threading.Thread(target=read, daemon=True).start()
    assert ended.wait(20)
    assert closed.is_set()


def test_a_stream_is_closed_when_its_reader_stops() -> None:
    closed = threading.Event()

    def stream() -> Iterator[int]:
        try:
            yield 1
            cancellable_sleep.sleep(600.0)
        finally:
            closed.set()

    async def read() -> None:
        async with contextlib.aclosing(threads.stream_in_thread(stream)) as items:
            async for item in items:
                assert item == 1
                break

    asyncio.run(read())
    assert closed.wait(20)


def test_both_clients_have_the_same_verbs_with_the_same_arguments() -> None:
    def verbs(kind: type) -> dict[str, list[str]]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: list(inspect.signature(f).parameters) for name, f in members if not name.startswith("_")
        }

    blocking, awaited = verbs(Client), verbs(AsyncClient)
    assert set(blocking) - set(awaited) == {"twin"}
    assert {name: blocking[name] for name in awaited} == awaited


def test_the_memory_engine_keeps_the_port() -> None:
    engine: Backend = MemoryBackend()
    assert (engine.name, engine.namespace) == ("memory", "default")


def test_a_handle_shows_itself() -> None:
    client = a_client()
    assert repr(client.submit(a_job())) == "<Job default/job: Pending>"
    assert isinstance(client.get("job"), Job)
