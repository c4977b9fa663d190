"""The async client over a plain engine: the loop is never blocked, streams can be left."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from mpijob import AsyncClient, JobFailed, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import NotFound, WaitTimeout
from mpijob.model import JobRef, JobState
from mpijob.settings import Settings


def a_client(script: Script | None = None, home: str = "") -> AsyncClient:
    return AsyncClient(MemoryBackend(script=script), settings=Settings(home=home))


def a_job(name: str = "job", **fields: object) -> MPIJob:
    return MPIJob(**{"name": name, "workers": 2, "command": ("echo", "hi"), **fields})  # type: ignore[arg-type]  # builder


@pytest.mark.req("FR-013", "FR-SDK-003")
def test_a_job_lives_its_whole_life_by_coroutines() -> None:
    async def life() -> None:
        async with a_client() as client:
            job = await client.run(a_job(), 60)
            assert [line.text async for line in job.logs()] == [b"hi", b"hi"]
            assert [event.reason async for event in job.events(follow=True)][-1] == "Succeeded"
            assert len(await job.metrics()) == 4
            again = await job.retry()
            assert (await again.wait(60)).phase is Phase.SUCCEEDED
            copy = await again.clone(workers=3)
            assert (await copy.spec()).workers == 3
            assert [state.ref.name async for state in client.jobs()] == ["job-2", "job"]
            assert (await client.compare("job", "job-2")).differences[0].field == "workers"
            assert "workers: 3" in await copy.export()
            await copy.suspend()
            await copy.resume()
            assert (await copy.cancel()).phase is Phase.CANCELLED
            assert await copy.why() == ()
            assert [done.ok for done in await client.delete_all(every=True)] == [True, True]
            assert (await client.list()).total == 0

    asyncio.run(life())


@pytest.mark.thorough
def test_coroutines_look_into_jobs_too(tmp_path: Path) -> None:
    async def look() -> None:
        async with a_client(home=str(tmp_path)) as client:
            job = await client.submit(a_job(command=("sleep", "300")))
            await job.wait(60, {Phase.RUNNING})
            assert (await job.stacks()).summary == "ranks 0-1 sleeping (sleep)"
            assert await job.warnings() == ()
            assert (await job.bundle(tmp_path / "b.tar.gz", stacks=True)).size > 0
            assert (await client.patterns()).ended == 0

    asyncio.run(look())


def test_calls_to_an_engine_happen_in_another_thread() -> None:
    threads = []

    class Watched(MemoryBackend):
        def get(self, ref: JobRef) -> JobState:
            threads.append(threading.current_thread())
            return super().get(ref)

    async def ask() -> None:
        client = AsyncClient(Watched(), settings=Settings())
        await client.submit(a_job())

    asyncio.run(ask())
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("verb", ["cancel", "suspend", "delete", "stacks"])
def test_who_only_looks_is_never_behind_those_who_wait_for_a_job(verb: str) -> None:
    released, seen = threading.Event(), list[str]()
    word = ContextVar("word", default="")

    class Slow(MemoryBackend):
        def _wait(self, *_: Any, **__: Any) -> Any:
            seen.append(word.get())
            assert released.wait(20)
            return ()

        cancel = suspend = delete = stacks = _wait

    async def ask() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        client = AsyncClient(Slow(), settings=Settings())
        ref = (await client.submit(a_job())).ref
        word.set("whose")
        waiting = [asyncio.create_task(getattr(client, verb)(ref)) for _ in range(3)]
        try:
            await asyncio.sleep(0)
            assert (await asyncio.wait_for(client.state(ref), 10)).ref == ref
        finally:
            released.set()
            await asyncio.gather(*waiting)

    asyncio.run(ask())
    assert seen == ["whose"] * 3


def test_errors_cross_the_threads() -> None:
    async def ask() -> None:
        client = a_client(Script(default=Outcome(exit_code=1)))
        with pytest.raises(NotFound, match="nobody"):
            await client.get("nobody")
        with pytest.raises(NotFound, match="nobody"):
            [line async for line in client.logs("nobody")]
        with pytest.raises(JobFailed, match="exit code 1"):
            await client.run(a_job())

    asyncio.run(ask())


def test_a_watch_can_be_left_while_nothing_happens() -> None:
    async def ask() -> list[str]:
        client = a_client()
        await client.submit(a_job(labels={"memory.mpijob/outcome": "hangs"}))
        seen = []
        async with aclosing(client.watch()) as states:
            async for state in states:
                seen.append(state.phase.value)
                if state.phase is Phase.RUNNING:
                    break
        return seen

    assert asyncio.run(asyncio.wait_for(ask(), 20))[-1] == "Running"


def test_a_wait_can_be_cancelled() -> None:
    async def ask() -> None:
        client = a_client()
        await client.submit(a_job(labels={"memory.mpijob/outcome": "hangs"}))
        with pytest.raises(WaitTimeout):
            await client.wait("job", 5)
        task = asyncio.create_task(client.wait("job"))
        await asyncio.sleep(0.05)  # its thread has begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(ask(), 20))


@pytest.mark.req("D-sdk")
def test_the_documented_names_are_coroutines_too() -> None:
    async def ask() -> None:
        client = a_client()
        await client.create_mpi_job("doc", "", 2, "", ["echo", "x"])
        assert [event.reason async for event in client.stream_job_events("doc")][-1] == "Succeeded"
        assert (await client.get_job_status("doc")).phase is Phase.SUCCEEDED
        assert await client.get_job_logs("doc", "worker", 1) == "[Rank-1] x\n"
        await client.delete_job("doc", 0)
        assert (await client.list()).total == 0

    asyncio.run(ask())
