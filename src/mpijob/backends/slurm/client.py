"""Slurm's commands, and what their failures mean: no answer (ask again), or a refusal (in Slurm's own words)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpijob.backends.slurm.host import SECONDS, Answer, Host
from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotAllowed, NotFound, QuotaExceeded
from mpijob.formats.slurm import queries
from mpijob.formats.slurm.queries import Row

_SILENT = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Protocol authentication error"
    r"|Connection (?:refused|timed out)"
    r"|Problem talking to the database|Resource temporarily unavailable|Unexpected message received|Zero Bytes were"
    r"|Unable to establish control machine|slurm_persist_conn_open|Slurm backup controller in standby"
    r"|Munge encode failed|Transport endpoint is not connected|Slurmdbd connection|authentication credential expired",
    re.IGNORECASE,
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


class SlurmClient:
    """Runs the commands on one host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def run(self, argv: Sequence[str], *, seconds: float = SECONDS) -> str:
        """Return what a command prints; raise BackendError (passing) where Slurm is silent, else what it refused."""
        answer = self.host.call(argv, env=queries.TIMES, seconds=seconds)
        if answer.code:
            raise refusal(argv[0], answer)
        return answer.out

    def job(self, number: str) -> Row | None:
        """Return a job in Slurm's memory, whoever's it is."""
        try:
            return queries.Rows(self.run(queries.squeue(jobs=[number]))).get(number)
        except NotFound:
            return None

    def accounting(self, numbers: Iterable[str], *, steps: bool = False, since: str = "") -> list[Row]:
        """Return what the accounting knows of jobs, each try; nothing where there is no accounting."""
        answer = self.host.call(queries.sacct(numbers, steps=steps, since=since), env=queries.TIMES)
        if answer.code and _SILENT.search(answer.said):
            raise refusal("sacct", answer)
        return [*queries.accounted(answer.out)]

    def show_job(self, number: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`; {} of a job that Slurm has forgotten."""
        try:
            text = self.run(("scontrol", "-o", "show", "job", number))
        except NotFound:
            return {}
        return queries.named_fields(text.splitlines()[0]) if text else {}

    def script(self, number: str) -> str:
        """Return the batch script of a job as it was submitted; "" where Slurm does not have it."""
        try:
            return self.run(("scontrol", "write", "batch_script", number, "-"))
        except MpiJobError:
            return ""

    def cancel(self, number: str, *words: str) -> None:
        """Cancel a job, or signal it; one that has ended stays as it is."""
        try:
            self.run(("scancel", *words, number))
        except NotFound:
            return


def refusal(command: str, answer: Answer) -> MpiJobError:
    """Return the error for a command that failed."""
    said = answer.said
    if _SILENT.search(said):
        hint = "running jobs are not affected; check the controller: scontrol ping"
        return BackendError(f"Slurm is not responding: {_first(said)}", hint=hint, passing=True)
    if _UNKNOWN_JOB.search(said):
        return NotFound(f"Slurm no longer knows this job: {_first(said)}")
    text = f"Slurm refuses it: {'; '.join(_lines(said)) or f'{command} ended with {answer.code}'}"
    if _NOT_ALLOWED.search(said):
        return NotAllowed(
            text,
            hint="list your accounts and partitions: sacctmgr show assoc user=$USER format=account,partition,qos",
        )
    if _TOO_MUCH.search(said):
        return QuotaExceeded(text, hint="request less, or use another partition, account or QOS")
    return InvalidJob(text, hint="change the named option; mpijob plan shows all options")


def _lines(said: str) -> list[str]:
    found = [_ERROR.sub("", line).strip() for line in said.splitlines()]
    return [line for line in dict.fromkeys(found) if line]


def _first(said: str) -> str:
    return (_lines(said) or [said])[0][:200]
