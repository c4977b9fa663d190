"""Respond to an AdmissionReview: defaults of a job, and whether it may be created.

A request that cannot be evaluated is rejected: an error of ours must not let a user read another user's
Secret. Only a namespace that its administrator labelled `open` accepts it, with a warning. The messages are
those of `admission`.
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
# The API server truncates longer ones.
_MAX_WARNING_LENGTH = 250
_MAX_WARNINGS = 8
_STATUS = {"QUOTA_EXCEEDED": 403, "NOT_ALLOWED": 403, "CONFLICT": 409}


class ClusterKnowledge(Protocol):
    """What the webhook knows about the cluster."""

    def limits(self, namespace: str) -> NamespaceLimits:
        """Return the limits of a namespace."""
        ...

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        """Return the runtime that a TrainJob references."""
        ...

    def around(self, incoming: Incoming) -> Around:
        """Return the facts needed to review a request."""
        ...

    def count_admitted(self, incoming: Incoming) -> None:
        """Count an admitted job."""
        ...


def respond(path: str, review: Mapping[str, Any], known: ClusterKnowledge) -> Document:
    """Return the response AdmissionReview; `path` selects the operation."""
    request = review["request"]
    try:
        response = (
            _review(path, review, known)
            if path in ("/judge", "/strict", "/open")
            else _defaults(path, review, known)
        )
    except (MpiJobError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        _LOG.exception("cannot evaluate a request for %s %s", request.get("kind"), request.get("name"))
        response = _error_response(error, passes=path == "/open")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **response},
    }


def _error_response(error: Exception, *, passes: bool) -> Document:
    message = f"mpijob could not evaluate this request ({type(error).__name__})"
    if passes:
        return {"allowed": True, "warnings": [f"{message}: it is accepted unchanged"]}
    return {"allowed": False, "status": {"code": 500, "reason": "InternalError", "message": message}}


def _defaults(path: str, review: Mapping[str, Any], known: ClusterKnowledge) -> Document:
    limits = known.limits(review["request"].get("namespace", ""))
    patch = request_reader.patches(
        review,
        restricted=path == "/restricted",
        deadline_seconds=limits.max_duration_seconds,
        queue=limits.queue,
    )
    if not patch:
        return {"allowed": True}
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def _review(path: str, review: Mapping[str, Any], known: ClusterKnowledge) -> Document:
    request = review["request"]
    is_trainjob = request["kind"]["kind"] == "TrainJob"
    runtime = (
        known.runtime(request.get("object") or {}, request.get("namespace", "")) if is_trainjob else None
    )
    incoming = request_reader.read(review, runtime)
    verdict = judgement.review(incoming, known.around(incoming), strict=path == "/strict")
    warnings = {"warnings": _warnings(verdict.warnings)} if verdict.warnings else {}
    if verdict.refusals:
        return {"allowed": False, "status": _status(verdict.refusals), **warnings}
    if incoming.operation == "CREATE" and incoming.job is not None and not request.get("dryRun"):
        known.count_admitted(incoming)
    return {"allowed": True, **warnings}


def _status(refusals: tuple[Finding, ...]) -> Document:
    """Return the status for the client: the message, and each finding so that mpijob can show it as its own."""
    causes = [
        {"reason": finding.code, "message": _with_hint(finding), "field": finding.field}
        for finding in refusals
    ]
    message = "; ".join(dict.fromkeys(judgement.format_finding(finding) for finding in refusals))
    code = _STATUS.get(refusals[0].code, 403)
    reason = "Conflict" if code == 409 else "Forbidden"
    return {"code": code, "reason": reason, "message": message, "details": {"causes": causes}}


def _with_hint(finding: Finding) -> str:
    return f"{finding.message}\nhint: {finding.hint}" if finding.hint else finding.message


def _warnings(findings: Iterable[Finding]) -> list[str]:
    messages = list(dict.fromkeys(judgement.format_finding(finding) for finding in findings))
    return [
        message[: _MAX_WARNING_LENGTH - 1] + "…" if len(message) > _MAX_WARNING_LENGTH else message
        for message in messages
    ][:_MAX_WARNINGS]
