"""Collecting the stacks of a cluster job's ranks: one exec in each worker's pod, side by side.

With the user's own right to exec and the container's own user: what py-spy or gdb in the image may not do
there is told, never worked around. What the pods say is read by `formats/launch/stack_dump`.
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

LOOK_SECONDS = 20
_LANES = 8
_FORBIDDEN = 403


def collect(
    api: Api, state: JobState, seen: Objects, ranks: Sequence[int], tool: bytes = b""
) -> tuple[RankStack, ...]:
    """Return the stacks of the ranks asked for, or of all; a worker that cannot be entered is told as that.

    With a `tool` (py-spy), workers that have none get it.
    """
    pods = {index: pod for index, pod in workers_of(seen.pods).items() if _runs(pod)}
    wanted = {one.worker for one in state.ranks if one.rank in ranks} if ranks and state.ranks else set(pods)
    if not pods:
        raise Conflict(f"no worker of {state.ref} runs: the job is {state.phase.value}")
    calls = {
        str(index): partial(_look, api, pods[index], index, tool) for index in sorted(wanted & pods.keys())
    }
    answers = concurrent.together(calls, _LANES)
    refused = [answer.error for answer in answers.values() if answer.error is not None]
    if refused and len(refused) == len(answers) and all(error.status == _FORBIDDEN for error in refused):
        raise api_errors.translate(refused[0], doing=f"inspect the workers of {state.ref.name}")
    found = [stack for answer in answers.values() for stack in answer.value or ()]
    return _with_the_rest(state, found, answers, ranks)


def tool() -> bytes:
    """Return this machine's py-spy: one static program that runs in any image of the same architecture."""
    beside = Path(sys.executable).parent / "py-spy"
    found = beside if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise Unsupported("py-spy is not installed on this machine", hint="pip install 'mpijob[stacks]'")
    return Path(found).read_bytes()


def _look(api: Api, pod: Document, index: int, tool: bytes) -> tuple[RankStack, ...]:
    found = _asked(api, pod, index)
    if tool and any(stack.lack is Lack.NO_PYSPY for stack in found):
        argv = ("/bin/sh", "-c", words.CARRY, "mpijob-carry", platform.machine(), str(len(tool)))
        status, _, _ = _run(api, pod, argv, tool)
        found = _asked(api, pod, index) if status == 0 else found
    return found


def _asked(api: Api, pod: Document, index: int) -> tuple[RankStack, ...]:
    mark = secrets.token_hex(12)
    argv = ("/bin/sh", "-c", words.SCRIPT, "mpijob-stacks", mark, "", str(LOOK_SECONDS))
    _, said, _ = _run(api, pod, argv)
    return words.read(mark, said.decode(errors="replace"), index)


def _run(
    api: Api, pod: Document, argv: tuple[str, ...], given: bytes | None = None
) -> tuple[int, bytes, bytes]:
    metadata = pod["metadata"]
    path = resources.POD.path(metadata["namespace"], metadata["name"], "exec")
    main = pod_words.container_of(pod["spec"])["name"]
    return exec_stream.capture(api, path, argv, container=main, given=given)


def _runs(pod: Document) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _with_the_rest(
    state: JobState, found: Sequence[RankStack], answers: concurrent.ReadResults, ranks: Sequence[int]
) -> tuple[RankStack, ...]:
    seen = {stack.rank: stack for stack in found if not ranks or stack.rank in ranks}
    for one in state.ranks:
        if one.rank in seen or (ranks and one.rank not in ranks):
            continue
        error = answers[str(one.worker)].error
        lack = Lack.GONE if error is None and str(one.worker) in answers else Lack.UNREACHED
        seen[one.rank] = RankStack(
            rank=one.rank, worker=one.worker, lack=lack, said=error.message if error else ""
        )
    return tuple(seen[rank] for rank in sorted(seen))
