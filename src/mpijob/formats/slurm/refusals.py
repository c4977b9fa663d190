"""What Slurm's commands say where they fail, on stderr: that nobody answered, or why they refuse."""

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
    """What a failure means."""

    # Nobody answered: it may be asked again.
    SILENT = _SILENT
    UNKNOWN_JOB = _UNKNOWN_JOB
    NOT_ALLOWED = _NOT_ALLOWED
    TOO_MUCH = _TOO_MUCH
    # Whatever else is refused.
    INVALID = re.compile("")


def meaning(said: str) -> Refusal:
    """Return what a failure means, by what the command said."""
    return next(one for one in Refusal if one.value.search(said))


def silence(said: str) -> str:
    """Return the line that says that nobody answered; "" where somebody did."""
    return next((line for line in reasons(said) if _SILENT.search(line)), "")


def unsent(said: str) -> bool:
    """Return whether a command failed before it had reached Slurm: then Slurm did nothing."""
    return _UNSENT.search(said) is not None


def reasons(said: str) -> list[str]:
    """Return the lines of what was said, without what stands before each reason, and each once."""
    found = [_ERROR.sub("", line).strip() for line in said.splitlines()]
    return [line for line in dict.fromkeys(found) if line]
