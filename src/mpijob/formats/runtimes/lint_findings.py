"""Findings that both lints have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.errors import Finding, Severity
from mpijob.formats.kubernetes.metadata import well_known

NEW_HOSTFILE = "PRTE_MCA_prte_default_hostfile"
ERROR, WARNING, NOTICE = _ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the most severe first."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def finding(code: str, severity: Severity, message: str, hint: str, field: str) -> Finding:
    """Return a finding: an error affects every job, a warning some, a notice none yet."""
    return Finding(code=code, message=message, hint=hint, field=field, severity=severity)


def deadlock(hint: str, field: str) -> Finding:
    """A gang that includes a launcher which is created only after the gang has started."""
    message = "the pod group waits for the launcher, and the launcher for the workers: nothing ever starts"
    return finding("RUNTIME_GANG", ERROR, message, hint, field)


def early_launcher(hint: str, field: str) -> Finding:
    """A launcher that does not wait for the workers."""
    message = "the launcher does not wait for the workers: mpirun may run before any sshd answers"
    return finding("RUNTIME_ORDER", WARNING, message, hint, field)


def unproved_workers(field: str) -> Finding:
    """Workers that count as ready before their sshd runs."""
    message = (
        "the launcher waits for workers that are Ready as soon as they run: their sshd may not answer yet"
    )
    return finding(
        "RUNTIME_ORDER",
        WARNING,
        message,
        f"add a readiness probe to the workers: tcpSocket port {well_known.SSH_PORT}",
        field,
    )


def silent_retries(restart: str, limit: object, hint: str, field: str) -> Finding:
    """A launcher that is retried without notice."""
    message = (
        f"a failed mpirun is retried silently (restartPolicy {restart}, backoffLimit {limit}): "
        "its first log is lost"
    )
    return finding("RUNTIME_RETRIES", WARNING, message, hint, field)


# trainer#4028, mpi-operator#842.
def unlisted_hosts(main: Mapping[str, Any], field: str) -> Finding | None:
    """Both engines set the hostfile of Open MPI 4 only; Open MPI 5 ignores those variables."""
    names = {variable.get("name") for variable in main.get("env") or ()}
    words = " ".join(str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ())))
    if NEW_HOSTFILE in names or "-hostfile" in words:
        return None
    message = "Open MPI 5 gets no hostfile: it runs every rank on the launcher, and the job succeeds"
    hint = f"set {NEW_HOSTFILE} in the launcher, or always write mpirun --hostfile {well_known.HOSTFILE}"
    return finding("RUNTIME_HOSTFILE", WARNING, message, hint, field)
