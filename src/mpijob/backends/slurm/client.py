"""Slurm's commands and their failures: no response (passing), or a refusal with Slurm's own message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpijob.backends.slurm.host import SECONDS, Answer, Host
from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotAllowed, NotFound, QuotaExceeded
from mpijob.formats.slurm import queries, refusals
from mpijob.formats.slurm.queries import Row
from mpijob.formats.slurm.refusals import Refusal


class SlurmClient:
    """Runs Slurm's commands on one host, with times as seconds since 1970 (`queries.TIMES`)."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def run(self, argv: Sequence[str], *, seconds: float = SECONDS) -> str:
        """Return a command's stdout; raise BackendError (passing) if Slurm does not respond, else its refusal."""
        answer = self.host.call(argv, env=queries.TIMES, seconds=seconds)
        if answer.code:
            raise refusal(argv[0], answer)
        return answer.out

    def job(self, number: str) -> Row | None:
        """Return a job of any user that slurmctld still has; None for others."""
        try:
            return queries.Rows(self.run(queries.squeue(jobs=[number]))).get(number)
        except NotFound:
            return None

    def accounting(self, numbers: Iterable[str], *, steps: bool = False, since: str = "") -> list[Row]:
        """Return the accounting records of jobs, one for each try; none if there is no accounting."""
        answer = self.host.call(queries.sacct(numbers, steps=steps, since=since), env=queries.TIMES)
        # Without slurmdbd, sacct fails with a message of its own, which is not an outage.
        if answer.code and refusals.meaning(answer.said) is Refusal.SILENT:
            raise refusal("sacct", answer)
        return [*queries.accounted(answer.out)]

    def show_job(self, number: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`; {} of a job that slurmctld has forgotten (MinJobAge)."""
        try:
            text = self.run(("scontrol", "-o", "show", "job", number))
        except NotFound:
            return {}
        return queries.named_fields(text.splitlines()[0]) if text else {}

    def script(self, number: str) -> str:
        """Return the batch script of a job as submitted; "" if Slurm does not have it."""
        try:
            return self.run(("scontrol", "write", "batch_script", number, "-"))
        except MpiJobError:
            return ""

    def cancel(self, number: str, *words: str) -> None:
        """Cancel or signal a job; one that has ended stays as it is."""
        try:
            self.run(("scancel", *words, number))
        except NotFound:
            return


def refusal(command: str, answer: Answer) -> MpiJobError:
    kind, found = refusals.meaning(answer.said), refusals.reasons(answer.said)
    text = f"Slurm refuses it: {'; '.join(found) or f'{command} ended with {answer.code}'}"
    match kind:
        case Refusal.SILENT:
            hint = "running jobs are not affected; check the controller: scontrol ping"
            silence = refusals.silence(answer.said)[:200]
            return BackendError(f"Slurm is not responding: {silence}", hint=hint, passing=True)
        case Refusal.UNKNOWN_JOB:
            return NotFound(f"Slurm no longer knows this job: {found[0][:200]}")
        case Refusal.NOT_ALLOWED:
            hint = "list your accounts and partitions: sacctmgr show assoc user=$USER format=account,partition,qos"
            return NotAllowed(text, hint=hint)
        case Refusal.TOO_MUCH:
            return QuotaExceeded(text, hint="request less, or use another partition, account or QOS")
        case Refusal.INVALID:
            return InvalidJob(text, hint="change the named option; mpijob plan shows all options")
