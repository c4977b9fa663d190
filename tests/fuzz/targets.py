"""The readers of foreign input. A target raises what breaks its promise, and returns whatever else happens."""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tests.unit.api_support import Browser, served
from tests.unit.incoming_support import Knowing

import mpijob
from mpijob import checks
from mpijob.backends.kubernetes.actions import claim_files
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.status import derive_state
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.cluster.webhook import admission_review
from mpijob.errors import MpiJobError
from mpijob.formats.convert import detect
from mpijob.formats.images import file_probes
from mpijob.formats.jobfile import jobfile_reader, site_rules_file
from mpijob.formats.launch import stack_dump
from mpijob.formats.status import launcher_census, status_reader
from mpijob.model import Family
from mpijob.observation.metrics import event_files, training
from mpijob.outbound.policy import UNRESTRICTED

FIXTURES = Path(__file__).parents[1] / "fixtures"
MARK = "mpijob-stack"
_FAMILIES = (Family.OPENMPI, Family.MPICH, Family.INTEL)
_PATHS = (
    "/plan",
    "/drafts",
    "/drafts/edit",
    "/drafts/convert",
    "/drafts/advice",
    "/fit",
    "/bulk",
    "/templates",
)


class Target(NamedTuple):
    """One reader: its promise, how an input is given to it, and inputs to begin with."""

    promise: str
    read: Callable[[bytes], None]
    begin: Callable[[], list[bytes]]


def _files(*patterns: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for one in patterns for path in sorted(FIXTURES.glob(one))]


def job_files(data: bytes) -> None:
    """Refused with findings, or read, judged, and the same when it is written and read again."""
    with suppress(MpiJobError):
        for job in jobfile_reader.read_all(data):
            checks.run(job)
            assert jobfile_reader.read(jobfile_reader.write(job)) == job


def foreign_files(data: bytes) -> None:
    """A script or manifest of another system is refused in words, or converted to jobs that can be judged."""
    with suppress(MpiJobError):
        for one in detect.read(data.decode(errors="replace")):
            assert one.jobs or one.entries
            for job in one.jobs:
                checks.run(job)


def bare_logs(data: bytes) -> None:
    """A log is explained, whatever is in it."""
    if data:
        assert mpijob.diagnose(data[1:], family=_FAMILIES[data[0] % 3]).summary


def launcher_logs(data: bytes) -> None:
    """A launcher's log tells a census, of ranks that the world can have."""
    layout = launcher_census.Layout(hosts={"worker-0": 0, "worker-1": 1}, planned=4, slots=2)
    if data:
        told = launcher_census.read(data[1:].decode(errors="replace"), _FAMILIES[data[0] % 3], layout)
        assert all(rank.rank >= 0 for rank in told.ranks)


def rule_files(data: bytes) -> None:
    """A site's rules are read, or refused with their place."""
    with suppress(MpiJobError):
        site_rules_file.read(data)


def stack_texts(data: bytes) -> None:
    """What a tool said in a worker is read as far as it can be."""
    stack_dump.read(MARK, data.decode(errors="replace"))


def libraries(data: bytes) -> None:
    """A file of an image that calls itself a library is looked into, and never believed beyond its end."""
    file_probes.read("usr/lib/libmpi.so.40", data)


def kubeconfigs(data: bytes) -> None:
    """A kubeconfig is read, or refused with an error of ours."""
    with suppress(MpiJobError):
        kubeconfig._parse(data.decode(errors="replace"), "config")


def training_lines(data: bytes) -> None:
    """Numbers are found in lines, and are numbers."""
    read = training.reader()
    for line in data.splitlines():
        assert all(isinstance(value, float | int) for value in read(line).values())


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


_LISTS, _ONES = ("jobs", "pods", "events"), ("job", "runtime", "jobset", "workload", "taker")


def _listed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects, and the lists of objects, as every answer of a server is one."""
    ones = {key: told[key] for key in _ONES if isinstance(told.get(key), dict)}
    lists = {key: told[key] for key in _LISTS if isinstance(told.get(key), list)}
    return ones | {key: [one for one in found if isinstance(one, dict)] for key, found in lists.items()}


def cluster_objects(data: bytes) -> None:
    """Objects of whatever content give a state, or are refused in words."""
    told = _object(data) or {}
    fields = _listed(told)
    if "job" not in fields:
        return
    with suppress(MpiJobError):
        status_reader.read(Objects(**fields), launcher_log=str(told.get("launcher_log") or ""))
        derive_state.summary(fields["job"])


def reviews(data: bytes) -> None:
    """Every request that reaches the webhook is answered, with its own uid."""
    review = _object(data)
    if review is None or not isinstance(review.get("request"), dict) or "uid" not in review["request"]:
        return
    for path in ("/judge", "/strict", "/defaults", "/restricted"):
        answer = admission_review.respond(path, review, Knowing())
        assert answer["response"]["uid"] == review["request"]["uid"]


@cache
def _browser() -> Browser:
    return ExitStack().enter_context(served()).sign_in()


def api_bodies(data: bytes) -> None:
    """The page's server answers every body, and never with an error of its own."""
    if data:
        path = _PATHS[data[0] % len(_PATHS)]
        headers = {"content-type": "application/json"}
        answer = _browser().post(path, content=data[1:], headers=headers)
        assert answer.status_code < 500, answer.text


def _reviews() -> list[bytes]:
    found = []
    for path in sorted(FIXTURES.glob("cluster/*.json"))[:12]:
        job = json.loads(path.read_text())["job"]
        request = {"uid": "r", "kind": {"kind": job.get("kind")}, "operation": "CREATE", "namespace": "cv",
                   "object": job, "userInfo": {"username": "jane"}}  # fmt: skip
        found.append(json.dumps({"request": request}).encode())
    return found


def _bodies() -> list[bytes]:
    job = {"name": "bert", "workers": 2, "command": ["true"]}
    bodies: list[dict[str, Any]] = [
        {"job": job}, {"yaml": "name: bert\ncommand: [true]\n"}, {"yaml": "name: b\n", "path": "workers", "value": 3},
        {"text": "#!/bin/sh\n#SBATCH -N 2\nsrun ./x\n"}, {"action": "cancel", "jobs": ["default/bert"]},
        {"name": "mine", "job": job}, {"name": "mine", "yaml": "name: b\n"},
    ]  # fmt: skip
    return [bytes([at]) + json.dumps(body).encode() for at in range(len(_PATHS)) for body in bodies]


def _job_files() -> list[bytes]:
    written = [path.read_bytes() for path in sorted((FIXTURES.parents[1] / "examples").rglob("*.yaml"))]
    return [
        *written,
        b"name: a\nworkers: 2\nslots: 2\ncommand: python train.py\nresources: {gpu: 1, memory: 1Gi}\n",
    ]


def claim_archives(data: bytes) -> None:
    """Of an archive from a reader pod only files that were asked for are taken; anything else is an error."""
    wanted, came = PurePosixPath("out"), list[PurePosixPath]()

    def write(place: PurePosixPath, pieces: Iterator[bytes]) -> None:
        came.append(place)
        for _ in pieces:
            pass

    with suppress(MpiJobError, *claim_files.NO_ARCHIVE):
        for _ in claim_files.members(io.BytesIO(data), [wanted], write, UNRESTRICTED):
            pass
    assert all(wanted in (place, *place.parents) and ".." not in place.parts for place in came)


def _archives() -> list[bytes]:
    kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)
    found = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
            for at, kind in enumerate(kinds):
                entry = tarfile.TarInfo(f"./out/{'long/' * 9 * at}{at}ö")
                entry.type, entry.linkname = kind, "./out/0ö"
                entry.size = 5 if kind == tarfile.REGTYPE else 0
                tar.addfile(entry, io.BytesIO(b"12345"))
        found.append(buffer.getvalue())
    return found


def event_file(data: bytes) -> None:
    """Of an event file at most so many tags and points are kept, and numbers are numbers."""
    budget = event_files.Budget(bytes=1 << 10, records=100, series=3, points=4)
    found = event_files.read(io.BytesIO(data), len(data), budget)
    assert len(found.curves) <= 3
    for one in event_files.merged([(".", "a", found), (".", "b", found)], budget):
        assert len(one.times) == len(one.steps) == len(one.values) <= 4
        assert len(one.tag) <= event_files.LONGEST_TAG
        assert all(map(math.isfinite, one.times))
        assert all(
            value is None or math.isfinite(value) for value in (*one.values, one.last, one.least, one.most)
        )


TARGETS = {
    read.__name__: Target((read.__doc__ or "").strip(), read, begin)
    for read, begin in (
        (job_files, _job_files),
        (foreign_files, _files("convert/*")),
        (bare_logs, _files("failures/*/*.txt", "innocent/*.txt")),
        (launcher_logs, _files("failures/openmpi/*.txt")),
        (rule_files, _files("rules_test.yaml")),
        (stack_texts, _files("stacks/*")),
        (libraries, lambda: [b"\x7fELF\x02\x01\x01" + bytes(57)]),
        (kubeconfigs, lambda: [b"apiVersion: v1\nclusters:\n- name: a\n  cluster: {server: x}\nusers: []\n"]),
        (training_lines, _files("healthy/*")),
        (cluster_objects, _files("cluster/*.json")),
        (reviews, _reviews),
        (api_bodies, _bodies),
        (claim_archives, _archives),
        (event_file, _files("event_files/*/events*")),
    )
}
