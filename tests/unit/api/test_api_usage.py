"""What a job uses, costs and has reached, as the page asks for it; answers come compressed."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest
from tests.unit.api_support import Browser, served, settled, signed_in

from mpijob.api import compression
from mpijob.api.live.progress import ProgressCache
from mpijob.api.live.rows import row
from mpijob.api.schemas.job_schemas import JobProgress
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import Finding, Severity
from mpijob.model import Amounts, JobRef, JobState, Phase, Sample
from mpijob.observation.metrics import usage

browser = pytest.fixture(signed_in)
TRAINS = Script(jobs={"train": Outcome(lines=("step 1/4 loss=0.9", "step 3/4 loss=0.5"))})


def test_usage_comes_as_a_band_and_worker_by_worker_with_its_limit() -> None:
    samples = [
        Sample(10.0, 0, 1.0, 100, gpus=0.5, gpu_memory_bytes=7),
        Sample(10.2, 1, 3.0, 300, gpus=1.5, gpu_memory_bytes=9),
        Sample(12.0, 1, 2.0, 200),
    ]
    found = usage.bands(samples, limit=Amounts(4.0, 400, 2), each_worker=True)
    assert (found.cpu_cores.low, found.cpu_cores.high, found.cpu_cores.worst) == (
        (1.0, 2.0),
        (3.0, 2.0),
        (1, 1),
    )
    assert (found.gpus.high, found.gpu_memory_bytes.high) == ((1.5, 0.0), (9, 0))
    assert [(one.worker, one.cpu_cores) for one in found.workers] == [(0, (1.0, None)), (1, (3.0, 2.0))]
    assert found.limit == Amounts(4.0, 400, 2)
    assert usage.bands(samples).workers == ()
    assert usage.bands((), each_worker=True).workers == ()


def test_the_usage_of_each_worker_is_asked_for(browser: Browser) -> None:
    browser.create("hello", "echo hello")
    settled(browser, {"Succeeded": 1})
    assert browser.get("/trainjobs/default/hello/metrics").json()["workers"] == []
    told = browser.get("/trainjobs/default/hello/metrics?each_worker=true&points=50").json()
    assert [one["worker"] for one in told["workers"]] == [0, 1]
    assert told["limit"]["memory_bytes"] == 1 << 30


def test_the_account_of_a_job_is_told_without_rates_and_without_earlier_runs(browser: Browser) -> None:
    browser.create("hello", "exit 3")
    settled(browser, {"Failed": 1})
    told = browser.get("/trainjobs/default/hello/account").json()
    assert (told["cost"], told["estimate"]) == (None, None)
    assert told["account"]["phase"] == "Failed"
    assert browser.get("/trainjobs/default/nothing/account").status_code == 404


def test_the_progress_of_several_jobs_is_told_and_others_are_left_out() -> None:
    with served(MemoryBackend(script=TRAINS)) as visitor:
        browser = visitor.sign_in()
        browser.create("train")
        browser.create("silent")
        settled(browser, {"Succeeded": 2})
        told = browser.get("/progress?job=default/train&job=default/silent&job=default/none").json()["items"]
        assert [(one["job"], one["progress"], one["steps"]) for one in told] == [("default/train", 0.75, 4)]
        assert browser.get("/progress?job=train").status_code == 400


def test_progress_is_read_again_only_when_it_is_old() -> None:
    now, reads = [0.0], list[int]()
    cache = ProgressCache(lambda: now[0])

    async def read() -> JobProgress:
        reads.append(1)
        return JobProgress(job="a/b", progress=0.5, step=None, steps=None, epoch=None, epochs=None, eta=None)

    running = row(JobState(ref=JobRef("a", "b", "u"), phase=Phase.RUNNING, started=1.0))
    for moment in (0.0, 3.0, 5.0):
        now[0] = moment
        asyncio.run(cache.of(running, read))
    assert len(reads) == 2
    ended = row(JobState(ref=JobRef("a", "b", "u"), phase=Phase.SUCCEEDED, started=1.0))
    for moment in (6.0, 1e6):
        now[0] = moment
        asyncio.run(cache.of(ended, read))
    assert len(reads) == 3


def test_a_running_job_with_a_warning_names_its_code() -> None:
    idle = Finding("RANK_IDLE", "Rank 1 is idle", severity=Severity.WARNING)
    state = JobState(ref=JobRef("a", "b", "u"), phase=Phase.RUNNING, findings=(idle,))
    assert (row(state).cause, row(state).why) == ("RANK_IDLE", "Rank 1 is idle")


def test_templates_say_what_they_need_and_why_they_could_not_run(browser: Browser) -> None:
    told: dict[str, Any] = {one["name"]: one for one in browser.get("/templates").json()["items"]}
    assert (told["hello"]["workers"], told["hello"]["gpus"], told["hello"]["blocker"]) == (2, 0, "")
    assert (told["horovod"]["workers"], told["horovod"]["gpus"]) == (4, 4)
    with served(MemoryBackend(capacity=Amounts(4.0, 8 << 30, 0))) as visitor:
        small = {one["name"]: one["blocker"] for one in visitor.sign_in().get("/templates").json()["items"]}
    assert small["hello"] == ""
    assert "GPU" in small["horovod"]


def test_large_answers_are_compressed_for_those_who_take_it(browser: Browser) -> None:
    large = browser.get("/guide", headers={"accept-encoding": "gzip"})
    assert large.headers["content-encoding"] == "gzip"
    assert int(large.headers["content-length"]) < len(large.content)
    assert "content-encoding" not in browser.get("/guide", headers={"accept-encoding": "identity"}).headers
    assert "content-encoding" not in browser.get("/session", headers={"accept-encoding": "gzip"}).headers


def test_log_lines_are_compressed_as_they_come(browser: Browser) -> None:
    browser.create("hello", "echo hello")
    settled(browser, {"Succeeded": 1})
    answer = browser.get("/trainjobs/default/hello/logs", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.count('"text":"hello"') == 2


def test_each_batch_of_a_compressed_stream_can_be_read_at_once() -> None:
    async def batches() -> Any:
        yield b"first\n"
        yield b"second\n"

    async def sent() -> list[bytes]:
        return [chunk async for chunk in compression.streamed(batches())]

    reader = zlib.decompressobj(31)
    seen = [reader.decompress(chunk) for chunk in asyncio.run(sent())]
    assert seen[:2] == [b"first\n", b"second\n"]
    assert reader.eof
