"""Respond to an AdmissionReview: defaults of a job, and whether it may be created.

A request that cannot be evaluated is rejected: an error of ours must not let a user read another user's
Secret. Only a namespace that its administrator labelled `open` accepts it, with a warning. The decision and
its messages are those of `admission`; `app` handles the HTTP request.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from mpijob.admission import webhook as admission
from mpijob.errors import Finding, MpiJobError
from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.admission_request import Around, Incoming
from mpijob.model.platform.governance import NamespaceLimits

_log = logging.getLogger(__name__)
# The API server truncates longer ones.
_MAX_WARNING_LENGTH = 250
_MAX_WARNINGS = 8
_STATUS = {"QUOTA_EXCEEDED": 403, "NOT_ALLOWED": 403, "CONFLICT": 409}


class ClusterView(Protocol):
    """What the webhook knows about the cluster; `cache` implements it."""

    def limits(self, namespace: str) -> NamespaceLimits: ...

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        """Return the runtime that a TrainJob references; None if there is none."""
        ...

    def facts(self, incoming: Incoming) -> Around:
        """Return the facts needed to review a request."""
        ...

    def count_admitted(self, incoming: Incoming) -> None: ...


def respond(path: str, review: Mapping[str, Any], cluster: ClusterView) -> Document:
    """Return the response AdmissionReview; `path` selects the operation."""
    request = review["request"]
    respond_to = _review if path in ("/judge", "/strict", "/open") else _defaults
    try:
        response = respond_to(path, review, cluster)
    except (MpiJobError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # What a document of any shape can cause.
        _log.exception("cannot evaluate a request for %s %s", request.get("kind"), request.get("name"))
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


def _defaults(path: str, review: Mapping[str, Any], cluster: ClusterView) -> Document:
    limits = cluster.limits(review["request"].get("namespace", ""))
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


def _review(path: str, review: Mapping[str, Any], cluster: ClusterView) -> Document:
    request = review["request"]
    runtime = None
    if request["kind"]["kind"] == "TrainJob":
        runtime = cluster.runtime(request.get("object") or {}, request.get("namespace", ""))
    incoming = request_reader.read(review, runtime)
    decision = admission.review(incoming, cluster.facts(incoming), strict=path == "/strict")
    warnings = {"warnings": _warnings(decision.warnings)} if decision.warnings else {}
    if decision.refusals:
        return {"allowed": False, "status": _status(decision.refusals), **warnings}
    if incoming.operation == "CREATE" and incoming.job is not None and not request.get("dryRun"):
        cluster.count_admitted(incoming)
    return {"allowed": True, **warnings}


def _status(refusals: tuple[Finding, ...]) -> Document:
    """Return the status for the client: the message, and each finding so that mpijob can show it as its own."""
    causes = [
        {"reason": finding.code, "message": _with_hint(finding), "field": finding.field}
        for finding in refusals
    ]
    message = "; ".join(dict.fromkeys(admission.format_finding(finding) for finding in refusals))
    code = _STATUS.get(refusals[0].code, 403)
    reason = "Conflict" if code == 409 else "Forbidden"
    return {"code": code, "reason": reason, "message": message, "details": {"causes": causes}}


def _with_hint(finding: Finding) -> str:
    return f"{finding.message}\nhint: {finding.hint}" if finding.hint else finding.message


def _warnings(findings: Iterable[Finding]) -> list[str]:
    messages = list(dict.fromkeys(admission.format_finding(finding) for finding in findings))
    return [
        message[: _MAX_WARNING_LENGTH - 1] + "…" if len(message) > _MAX_WARNING_LENGTH else message
        for message in messages
    ][:_MAX_WARNINGS]
