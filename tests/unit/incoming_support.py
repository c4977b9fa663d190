"""Requests that reach a webhook: builders, and a knowledge that says what a test says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mpijob.admission import webhook as judgement
from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import Family, MPIJob, job_uid
from mpijob.model.platform.admission_request import Around, Incoming
from mpijob.model.platform.governance import NamespaceLimits

JANE = {"username": "jane@example.org", "groups": ["team-cv", "system:authenticated"]}
RULE = "AdmissionPolicy 'mpijob-fixed' with binding 'mpijob-fixed'"
UID = job_uid.issue("cv", str(JANE["username"]))


def a_job(**fields: Any) -> MPIJob:
    return MPIJob(**{"name": "bert", "namespace": "cv", "image": "x/y:1", "command": ("true",)} | fields)


def documents(job: MPIJob, kind: str = "TrainJob", uid: str = UID) -> tuple[Document, ...]:
    """Return what jane's client sends."""
    family, job = Family.OPENMPI if kind == "TrainJob" else Family.MPICH, job.replace(owner=JANE["username"])
    shape = Shape(uid=uid, user=1000, family=family)
    return trainjob.write(job, shape) if kind == "TrainJob" else mpijob.write(job, shape)


def a_review(
    document: Mapping[str, Any], user: Mapping[str, Any] = JANE, *, raw: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a request as it is judged: what creates something has the owner that was added to it, unless `raw`."""
    if more.get("operation", "CREATE") == "CREATE" and not raw:
        document = json.loads(json.dumps(document))
        document["metadata"].setdefault("annotations", {})[well_known.OWNER_LABEL] = user["username"]
    request: dict[str, Any] = {
        "uid": "r1",
        "kind": {"kind": document["kind"]},
        "operation": "CREATE",
        "namespace": "cv",
        "name": document["metadata"].get("name", ""),
        "object": document,
        "userInfo": user,
    }
    return {"request": request | more}


class Knowing:
    """Knows what a test says."""

    def __init__(self, around: Around | None = None, runtime: Document | None = None) -> None:
        self._around, self._runtime = around or Around(), runtime
        self.let_in: list[str] = []

    def limits(self, namespace: str) -> NamespaceLimits:
        return self._around.limits

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        return self._runtime

    def facts(self, asked: Incoming) -> Around:
        return self._around

    def count_admitted(self, asked: Incoming) -> None:
        self.let_in.append(asked.name)


def asked_about(job: MPIJob, kind: str = "TrainJob", **more: Any) -> Incoming:
    *runtime, document = documents(job, kind)
    return request_reader.read(a_review(document, **more), *runtime)


def refused(job: MPIJob, around: Around, kind: str = "TrainJob") -> list[str]:
    return [one.message for one in judgement.review(asked_about(job, kind), around).refusals]


def limited(**limits: Any) -> Around:
    return Around(limits=NamespaceLimits(**limits))


def applied(document: Mapping[str, Any], patch: list[Document]) -> Any:
    """Return a document with a JSON patch of additions applied, as an API server would."""
    whole = json.loads(json.dumps(document))
    for one in patch:
        assert one["op"] == "add"
        steps = [step.replace("~1", "/").replace("~0", "~") for step in one["path"].split("/")[1:]]
        here = whole
        for step in steps[:-1]:
            here = here[int(step)] if isinstance(here, list) else here[step]
        here[steps[-1]] = one["value"]
    return whole
