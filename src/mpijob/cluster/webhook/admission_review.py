"""One AdmissionReview answered: what is added to a job, and whether it may be created.

What we cannot judge is refused: an error of ours must not let somebody read another's Secret. Only a namespace that
its administrator has labelled `open` passes it, with a warning. The sentences are those of `admission`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from mpijob.admission import webhook as judgement
from mpijob.errors import Finding, MpiJobError
from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.admission_request import Around, Incoming
from mpijob.model.platform.governance import NamespaceLimits

_LOG = logging.getLogger(__name__)
_LONGEST_WARNING = 250  # an API server cuts longer ones
_MOST_WARNINGS = 8
_STATUS = {"QUOTA_EXCEEDED": 403, "NOT_ALLOWED": 403, "CONFLICT": 409}


class Known(Protocol):
    """What is known around requests."""

    def limits(self, namespace: str) -> NamespaceLimits:
        """Return what holds in a namespace."""
        ...

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        """Return the runtime that a TrainJob names."""
        ...

    def around(self, asked: Incoming) -> Around:
        """Return what must be known to judge a request."""
        ...

    def admitted(self, asked: Incoming) -> None:
        """Count a job that was let in."""
        ...


def answer(path: str, review: Mapping[str, Any], known: Known) -> Document:
    """Return the AdmissionReview that answers one; `path` says what is asked for."""
    request = review["request"]
    try:
        response = (
            _judged(path, review, known)
            if path in ("/judge", "/strict", "/open")
            else _defaults(path, review, known)
        )
    except (MpiJobError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        _LOG.exception("a request for %s %s could not be judged", request.get("kind"), request.get("name"))
        response = _unjudged(error, passes=path == "/open")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **response},
    }


def _unjudged(error: Exception, *, passes: bool) -> Document:
    told = f"mpijob could not judge this ({type(error).__name__})"
    if passes:
        return {"allowed": True, "warnings": [f"{told}: it is passed as it is"]}
    return {"allowed": False, "status": {"code": 500, "reason": "InternalError", "message": told}}


def _defaults(path: str, review: Mapping[str, Any], known: Known) -> Document:
    limits = known.limits(review["request"].get("namespace", ""))
    patch = request_reader.patches(
        review,
        restricted=path == "/restricted",
        deadline_seconds=limits.max_duration_seconds,
        queue=limits.queue,
    )
    if not patch:
        return {"allowed": True}
    packed = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": packed}


def _judged(path: str, review: Mapping[str, Any], known: Known) -> Document:
    request = review["request"]
    named = request["kind"]["kind"] == "TrainJob"
    runtime = known.runtime(request.get("object") or {}, request.get("namespace", "")) if named else None
    asked = request_reader.read(review, runtime)
    verdict = judgement.judge(asked, known.around(asked), strict=path == "/strict")
    told = {"warnings": _warnings(verdict.warnings)} if verdict.warnings else {}
    if verdict.refusals:
        return {"allowed": False, "status": _status(verdict.refusals), **told}
    if asked.operation == "CREATE" and asked.job is not None and not request.get("dryRun"):
        known.admitted(asked)
    return {"allowed": True, **told}


def _status(refusals: tuple[Finding, ...]) -> Document:
    """Return what the client is told: the sentence, and each finding so that ours can say it as its own."""
    causes = [{"reason": one.code, "message": _with_hint(one), "field": one.field} for one in refusals]
    text = "; ".join(dict.fromkeys(judgement.sentence(one) for one in refusals))
    code = _STATUS.get(refusals[0].code, 403)
    reason = "Conflict" if code == 409 else "Forbidden"
    return {"code": code, "reason": reason, "message": text, "details": {"causes": causes}}


def _with_hint(one: Finding) -> str:
    return f"{one.message}\nhint: {one.hint}" if one.hint else one.message


def _warnings(findings: Iterable[Finding]) -> list[str]:
    texts = list(dict.fromkeys(judgement.sentence(one) for one in findings))
    return [text[: _LONGEST_WARNING - 1] + "…" if len(text) > _LONGEST_WARNING else text for text in texts][
        :_MOST_WARNINGS
    ]
