"""Who did what to which job, when, from where and with what result: one line of the audit.

The shape is that of Kubernetes' own audit (audit.k8s.io/v1, `Event`), so that whatever reads an API
server's log reads this one too. What that shape has no field for is in `annotations`, which come last.
The chain that makes a changed line show itself is laid by `history.audit`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum

import msgspec

DOMAIN = "mpijob.dev"
RECEIVED, STARTED, COMPLETE = "RequestReceived", "ResponseStarted", "ResponseComplete"


class Verb(StrEnum):
    """What was done."""

    CREATE = "create"
    RETRY = "retry"
    CLONE = "clone"
    CHANGE = "change"
    CANCEL = "cancel"
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE = "scale"
    DELETE = "delete"
    FORGET = "forget"
    LOGS = "logs"
    ARTIFACTS = "artifacts"
    FETCH = "fetch"
    EXEC = "exec"
    STACKS = "stacks"
    END = "end"
    PRUNE = "prune"
    SET = "set"
    RECONCILE = "reconcile"
    REGISTER = "register"
    STORE = "store"
    RESTORE = "restore"
    INSTALL = "install"


_WORDS = {
    "api_version": "apiVersion",
    "audit_id": "auditID",
    "request_uri": "requestURI",
    "source_ips": "sourceIPs",
    "user_agent": "userAgent",
    "object_ref": "objectRef",
    "response_status": "responseStatus",
    "received": "requestReceivedTimestamp",
    "time": "stageTimestamp",
    "api_group": "apiGroup",
}


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename=_WORDS):
    """Names in Python's manner, written in Kubernetes' manner."""


class User(_Shape, frozen=True, kw_only=True):
    """A user as the engine knows them; on a cluster, from a review of their credentials."""

    username: str
    groups: tuple[str, ...] = ()


class ObjectRef(_Shape, frozen=True, kw_only=True):
    """Which job, and what of it."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class ResponseStatus(_Shape, frozen=True, kw_only=True):
    """With what result: an HTTP status, and for a refusal its code and sentence."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class AuditEvent(_Shape, frozen=True, kw_only=True):
    """One entry of the audit log.

    `stage` is RequestReceived before an action, ResponseComplete after it, and ResponseStarted when logs are read.
    """

    kind: str = ""
    api_version: str = ""
    level: str = ""
    audit_id: str
    stage: str
    request_uri: str = ""
    verb: str
    user: User
    source_ips: tuple[str, ...] = ()
    user_agent: str = ""
    object_ref: ObjectRef | None = None
    response_status: ResponseStatus | None = None
    received: str = ""
    time: str
    annotations: Mapping[str, str] = {}

    def note(self, name: str) -> str:
        """Return an annotation of ours; "" where there is none."""
        return self.annotations.get(f"{DOMAIN}/{name}", "")

    @property
    def details(self) -> dict[str, str]:
        """What was noted beside the fields, without the chain."""
        found = {key.removeprefix(f"{DOMAIN}/"): value for key, value in self.annotations.items()}
        return {key: value for key, value in found.items() if key not in ("sequence", "previous", "hash")}

    @property
    def refused(self) -> bool:
        """Whether it did not come about."""
        return self.response_status is not None and self.response_status.code >= 400


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are wanted; empty means all. Times are seconds since the epoch."""

    users: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    namespace: str = ""
    since: float | None = None
    until: float | None = None
    refused: bool = False
    limit: int = 0

    def wants(self, event: AuditEvent) -> bool:
        """Return whether a line is among them; the limit is the reader's business."""
        about = event.object_ref or ObjectRef()
        return (
            (not self.users or event.user.username in self.users)
            and (not self.verbs or event.verb in self.verbs)
            and (not self.jobs or about.name in self.jobs)
            and (not self.namespace or about.namespace == self.namespace)
            and (self.since is None or event.time >= stamp(self.since))
            and (self.until is None or event.time <= stamp(self.until))
            and (not self.refused or event.refused)
        )


def stamp(moment: float) -> str:
    """Return a time as Kubernetes' audit writes it: `2026-11-15T14:02:07.123456Z`; such texts sort by time."""
    whole = int(moment)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((moment - whole) * 1e6):06d}Z"
