"""The errors of this package in one tree, and findings.

An exception means that a call failed. A `Finding` is about a user's job: a failed check, a notice in a plan,
the cause of a failure. Both have the same three parts: what happened (with real numbers and names), where,
and how to fix it.

* MpiJobError
  - InvalidJob        the job contradicts itself            (before anything is sent)
  - InvalidImage      an image is damaged or malicious
  - NotAllowed        the user lacks a permission
  - UnsafePath        another user could change a file or program that is trusted
  - QuotaExceeded     it exceeds the capacity or a quota
  - Conflict          it conflicts with the current state
  - NotFound          no such job, template, worker …
  - BackendError      the engine returned an unexpected error
    - NotStored       an object store did not confirm an upload
  - Unsupported       this engine does not support it
  - WaitTimeout       it did not happen in the given time
  - JobFailed         it ran and failed; has the findings
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec


class Kind(StrEnum):
    """The category of an error, which each interface maps once: to an exit status, to an HTTP status."""

    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"
    NO_ROOM = "no_room"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    FAILED = "failed"
    INTERNAL = "internal"


HTTP_STATUS: dict[Kind, int] = {
    Kind.INVALID: 400,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.NO_ROOM: 409,
    Kind.FAILED: 409,
    Kind.UNSUPPORTED: 501,
    Kind.UNAVAILABLE: 503,
    Kind.TIMEOUT: 504,
    Kind.INTERNAL: 500,
}


class Severity(StrEnum):
    """How much a finding matters: an error stops a job, a warning may, a notice only informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Fix(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fix of a finding: a sentence, and the patch to the spec or the command."""

    text: str
    patch: dict[str, Any] = {}
    command: str = ""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position in the logs: stream, line of a file, or time."""

    role: str = ""
    worker: int | None = None
    rank: int | None = None
    stream: str = ""
    file: str = ""
    line: int = 0
    time: float = 0.0


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message about a job, from a check, a plan or a diagnosis.

    `field` is the path in the spec (`resources.memory`); `line` and `column` are set if the job is from a file.
    `evidence` quotes log lines or events and `place` is their position; `fixes` are ranked, best first.
    """

    code: str
    message: str
    hint: str = ""
    field: str = ""
    severity: Severity = Severity.ERROR
    file: str = ""
    line: int = 0
    column: int = 0
    worker: int | None = None
    rank: int | None = None
    evidence: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    confidence: float = 1.0
    place: Place | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        field = f"{self.field}: " if self.field and not self.message.startswith(self.field) else ""
        return (f"{place}: " if place else "") + field + self.message


class MpiJobError(Exception):
    """The base class of all errors of this package."""

    code: ClassVar[str] = "ERROR"
    kind: ClassVar[Kind] = Kind.INTERNAL

    def __init__(self, message: str, *, hint: str = "", findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.findings = findings

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class InvalidJob(MpiJobError):
    """The job is not valid; `findings` contains all errors."""

    code = "INVALID_JOB"
    kind = Kind.INVALID

    @classmethod
    def of(cls, findings: tuple[Finding, ...], what: str = "the job") -> InvalidJob:
        """Return one error for all findings, with the first hint."""
        lines = "\n".join(f"  {finding}" for finding in findings)
        count = f"{len(findings)} errors" if len(findings) > 1 else "1 error"
        hint = next((finding.hint for finding in findings if finding.hint), "")
        return cls(f"{what} is not valid, {count}:\n{lines}", hint=hint, findings=findings)


class InvalidImage(MpiJobError):
    """An image cannot be read: it is damaged, does not match its digest, or is malicious."""

    code = "INVALID_IMAGE"
    kind = Kind.INVALID


class NotAllowed(MpiJobError):
    """The user lacks the permission."""

    code = "NOT_ALLOWED"
    kind = Kind.FORBIDDEN


class UnsafePath(MpiJobError):
    """A file or directory that mpijob trusts or runs belongs to another user, or others can change it."""

    code = "UNSAFE_PATH"
    kind = Kind.FORBIDDEN


class QuotaExceeded(MpiJobError):
    """The job requests more than the capacity or the quota."""

    code = "QUOTA_EXCEEDED"
    kind = Kind.NO_ROOM


class Conflict(MpiJobError):
    """The request conflicts with the current state."""

    code = "CONFLICT"
    kind = Kind.CONFLICT


class NotFound(MpiJobError):
    """The object does not exist."""

    code = "NOT_FOUND"
    kind = Kind.NOT_FOUND


class BackendError(MpiJobError):
    """The engine returned an unexpected error; `passing` if it is temporary: not reachable, or busy."""

    code = "BACKEND_ERROR"
    kind = Kind.UNAVAILABLE

    def __init__(
        self, message: str, *, hint: str = "", findings: tuple[Finding, ...] = (), passing: bool = False
    ) -> None:
        super().__init__(message, hint=hint, findings=findings)
        self.passing = passing


class NotStored(BackendError):
    """An object store did not confirm an upload; no local file was removed."""

    code = "NOT_STORED"


class Unsupported(MpiJobError):
    """This engine or this machine does not support the request."""

    code = "UNSUPPORTED"
    kind = Kind.UNSUPPORTED


class WaitTimeout(MpiJobError):
    """The wait timed out."""

    code = "WAIT_TIMEOUT"
    kind = Kind.TIMEOUT


class JobFailed(MpiJobError):
    """The job ran and failed; `findings` contain the causes, the first cause first."""

    code = "JOB_FAILED"
    kind = Kind.FAILED
