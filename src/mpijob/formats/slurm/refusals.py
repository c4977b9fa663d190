"""The meaning of errors of Slurm's commands: no response from Slurm, or the reason of a refusal."""

from __future__ import annotations

import re
from enum import Enum

_SILENT = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Protocol authentication error"
    r"|Connection (?:refused|timed out)"
    r"|Problem talking to the database|Resource temporarily unavailable|Unexpected message received|Zero Bytes were"
    r"|Unable to establish control machine|slurm_persist_conn_open|Slurm backup controller in standby"
    r"|Munge encode failed|Transport endpoint is not connected|Slurmdbd connection|authentication credential expired",
    re.IGNORECASE,
)
_UNSENT = re.compile(
    r"Munge encode failed|controller \(connect failure\)|Unable to establish control machine", re.IGNORECASE
)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified|Job/step already completing|Job has already finished")
_NOT_ALLOWED = re.compile(
    r"[Aa]ccess(?:/permission)? denied|Invalid account|not permitted|Invalid qos|Permission denied"
)
_TOO_MUCH = re.compile(
    r"violates accounting/QOS|configuration is not available|More processors requested|limit", re.IGNORECASE
)
_ERROR = re.compile(
    r"^(?:\w+: )?(?:error: |fatal: )?(?:Batch job submission failed: |allocation failure: )?", re.MULTILINE
)


class Refusal(Enum):
    """The meaning of an error; the first pattern that matches decides."""

    # No response: the command can be repeated.
    SILENT = _SILENT
    UNKNOWN_JOB = _UNKNOWN_JOB
    NOT_ALLOWED = _NOT_ALLOWED
    TOO_MUCH = _TOO_MUCH
    # Any other error.
    INVALID = re.compile("")


def meaning(stderr: str) -> Refusal:
    """Return the meaning of a command's error."""
    return next(refusal for refusal in Refusal if refusal.value.search(stderr))


def silence(stderr: str) -> str:
    """Return the line that reports a missing response, "" if Slurm responded."""
    return next((line for line in reasons(stderr) if _SILENT.search(line)), "")


def unsent(stderr: str) -> bool:
    """Return whether a command failed before its request reached Slurm: it can be repeated safely."""
    return _UNSENT.search(stderr) is not None


def reasons(stderr: str) -> list[str]:
    """Return the distinct lines of an error without their prefixes."""
    found = [_ERROR.sub("", line).strip() for line in stderr.splitlines()]
    return [line for line in dict.fromkeys(found) if line]
