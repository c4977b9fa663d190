"""Collects the stacks of a cluster job's ranks: one exec in each worker's pod, concurrently.

With the user's own permission to exec and as the container's user: what py-spy or gdb may not do there is
reported and not worked around. The output is parsed by `formats/launch/stack_dump`.
"""

from __future__ import annotations

import platform
import secrets
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mpijob.backends.kubernetes.client import api_errors, concurrent, exec_stream, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.logs.pod_logs import workers_of
from mpijob.backends.kubernetes.status.derive_state import Document, Objects
from mpijob.errors import Conflict, Unsupported
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.formats.launch import stack_dump as words
from mpijob.model import JobState
from mpijob.model.status.stacks import Lack, RankStack

TIMEOUT_SECONDS = 20
_MAX_CONCURRENT = 8
_FORBIDDEN = 403


def collect(
    api: Api, state: JobState, seen: Objects, ranks: Sequence[int], tool: bytes = b""
) -> tuple[RankStack, ...]:
    """Return the stacks of the given ranks, or of all; a worker that cannot be reached is reported as such.

    With a `tool` (py-spy), it is copied to workers that have none.
    """
    pods = {index: pod for index, pod in workers_of(seen.pods).items() if _is_running(pod)}
    wanted = (
        {rank.worker for rank in state.ranks if rank.rank in ranks} if ranks and state.ranks else set(pods)
    )
    if not pods:
        raise Conflict(f"no worker of {state.ref} runs: the job is {state.phase.value}")
    calls = {
        str(index): partial(_dump, api, pods[index], index, tool) for index in sorted(wanted & pods.keys())
    }
    results = concurrent.together(calls, _MAX_CONCURRENT)
    refused = [answer.error for answer in results.values() if answer.error is not None]
    if refused and len(refused) == len(results) and all(error.status == _FORBIDDEN for error in refused):
        raise api_errors.translate(refused[0], doing=f"inspect the workers of {state.ref.name}")
    found = [stack for answer in results.values() for stack in answer.value or ()]
    return _with_missing(state, found, results, ranks)


def tool() -> bytes:
    """Return this machine's py-spy: one static program that runs in any image of the same architecture."""
    beside = Path(sys.executable).parent / "py-spy"
    found = beside if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise Unsupported("py-spy is not installed on this machine", hint="pip install 'mpijob[stacks]'")
    return Path(found).read_bytes()


def _dump(api: Api, pod: Document, index: int, tool: bytes) -> tuple[RankStack, ...]:
    found = _run_script(api, pod, index)
    if tool and any(stack.lack is Lack.NO_PYSPY for stack in found):
        argv = ("/bin/sh", "-c", words.CARRY, "mpijob-carry", platform.machine(), str(len(tool)))
        status, _, _ = _run(api, pod, argv, tool)
        found = _run_script(api, pod, index) if status == 0 else found
    return found


def _run_script(api: Api, pod: Document, index: int) -> tuple[RankStack, ...]:
    # Random, so that output of the program cannot be taken for ours.
    mark = secrets.token_hex(12)
    argv = ("/bin/sh", "-c", words.SCRIPT, "mpijob-stacks", mark, "", str(TIMEOUT_SECONDS))
    _, said, _ = _run(api, pod, argv)
    return words.read(mark, said.decode(errors="replace"), index)


def _run(
    api: Api, pod: Document, argv: tuple[str, ...], given: bytes | None = None
) -> tuple[int, bytes, bytes]:
    metadata = pod["metadata"]
    path = resources.POD.path(metadata["namespace"], metadata["name"], "exec")
    main = pod_words.container_of(pod["spec"])["name"]
    return exec_stream.capture(api, path, argv, container=main, given=given)


def _is_running(pod: Document) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _with_missing(
    state: JobState, found: Sequence[RankStack], results: concurrent.ReadResults, ranks: Sequence[int]
) -> tuple[RankStack, ...]:
    seen = {stack.rank: stack for stack in found if not ranks or stack.rank in ranks}
    for rank in state.ranks:
        if rank.rank in seen or (ranks and rank.rank not in ranks):
            continue
        error = results[str(rank.worker)].error
        lack = Lack.GONE if error is None and str(rank.worker) in results else Lack.UNREACHED
        seen[rank.rank] = RankStack(
            rank=rank.rank, worker=rank.worker, lack=lack, said=error.message if error else ""
        )
    return tuple(seen[rank] for rank in sorted(seen))
