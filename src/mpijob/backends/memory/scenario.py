"""What the ranks of a simulated job do: the lines that they print, when they end and with which exit code.

This is decided by the `Script` that was given to the backend, else by the job's labels, else by the job's command
as far as `shell_sim` understands it. `engine` runs the result on the virtual clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from mpijob.backends.memory import shell_sim
from mpijob.backends.memory.shell_sim import RankRun
from mpijob.errors import InvalidJob
from mpijob.formats.launch import command_line
from mpijob.model import MPIJob, Plan

OUTCOME_LABEL = "memory.mpijob/outcome"
SECONDS_LABEL = "memory.mpijob/seconds"
_WORDS = re.compile(r"(succeeds|hangs|fails)(?:-([0-9]{1,3}))?(?:-on-([0-9]{1,4}))?")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks of a job do.

    `worker` limits a failure to that worker's ranks, `attempts` to that number of attempts from the first one.
    `lines` are printed at the start; they may contain `{rank}`, `{world}` and `{worker}`.
    """

    seconds: float = 1.0
    exit_code: int = 0
    worker: int | None = None
    attempts: int | None = None
    hangs: bool = False
    lines: tuple[str, ...] = ()

    def rank_run(self, env: Mapping[str, str], attempt: int) -> RankRun:
        """Return what the rank with this environment does in this attempt."""
        names = {"rank": env["MPIJOB_RANK"], "world": env["MPIJOB_WORLD"], "worker": env["MPIJOB_WORKER"]}
        lines = tuple((0.0, line.format(**names)) for line in self.lines)
        fails = self.worker is None or str(self.worker) == env["MPIJOB_WORKER"]
        fails = fails and (self.attempts is None or attempt <= self.attempts)
        ends = None if self.hangs else self.seconds
        # The other workers are still running when the failure ends the job.
        if self.exit_code and not fails and self.worker is not None:
            ends = self.seconds + 60.0
        return RankRun(lines=lines, ends=ends, exit_code=self.exit_code if fails else 0)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes by job name (patterns such as `train-*` are allowed), and one for all other jobs."""

    jobs: Mapping[str, Outcome] = {}
    default: Outcome | None = None

    def outcome(self, job: MPIJob) -> Outcome | None:
        """Return the outcome of this job; None if its command decides."""
        for pattern, outcome in self.jobs.items():
            if fnmatchcase(job.name, pattern):
                return outcome
        return outcome_from_labels(job.labels) or self.default


def outcome_from_labels(labels: Mapping[str, str]) -> Outcome | None:
    """Return the outcome that labels request: `succeeds`, `hangs`, `fails`, `fails-137-on-1`; raise InvalidJob."""
    words, seconds = labels.get(OUTCOME_LABEL), labels.get(SECONDS_LABEL, "1")
    if words is None:
        return None
    match = _WORDS.fullmatch(words)
    if match is None or not re.fullmatch(r"[0-9]{1,9}", seconds):
        raise InvalidJob(
            f"label {OUTCOME_LABEL}={words!r} with {SECONDS_LABEL}={seconds!r} is not an outcome",
            hint="write succeeds, hangs, fails or fails-137-on-1, and whole seconds",
        )
    kind, code, worker = match.groups()
    return Outcome(
        seconds=float(seconds),
        exit_code=int(code or 1) if kind == "fails" else 0,
        worker=int(worker) if worker else None,
        hangs=kind == "hangs",
    )


def rank_runs(plan: Plan, script: Script, attempt: int) -> dict[int, RankRun]:
    outcome = script.outcome(plan.job)
    runs = {}
    for worker in plan.workers:
        for local, rank in enumerate(worker.ranks):
            env = {
                **plan.env,
                "MPIJOB_RANK": str(rank),
                "MPIJOB_WORLD": str(plan.world),
                "MPIJOB_WORKER": str(worker.index),
                "MPIJOB_LOCAL_RANK": str(local),
                command_line.GROUP: worker.group,
                "MPIJOB_ATTEMPT": str(attempt),
            }
            runs[rank] = (
                outcome.rank_run(env, attempt) if outcome else shell_sim.simulate(_argv(plan.job, rank), env)
            )
    return runs


def _argv(job: MPIJob, rank: int) -> tuple[str, ...]:
    for program in job.programs:
        if rank < program.ranks:
            return (*program.command, *program.args)
        rank -= program.ranks
    return job.argv
