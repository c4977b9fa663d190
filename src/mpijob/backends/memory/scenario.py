"""How a simulated job behaves: what each rank says, when it ends and with which exit code.

A `Script` given to the backend decides first, then the job's own labels, then the job's command as
far as `shell_sim` understands it. Playing the result on the timeline is the business of `engine`.
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
    """One behaviour: run so long, say these lines, end like this.

    `worker` limits a failure to that worker's ranks, `attempts` to the first so many attempts.
    `lines` may hold `{rank}`, `{world}` and `{worker}`.
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
        said = tuple((0.0, line.format(**names)) for line in self.lines)
        hit = self.worker is None or str(self.worker) == env["MPIJOB_WORKER"]
        hit = hit and (self.attempts is None or attempt <= self.attempts)
        ends = None if self.hangs else self.seconds
        if self.exit_code and not hit and self.worker is not None:
            ends = self.seconds + 60.0  # the others would have gone on
        return RankRun(lines=said, ends=ends, exit_code=self.exit_code if hit else 0)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes by job name (patterns such as `train-*` are allowed), and one for all other jobs."""

    jobs: Mapping[str, Outcome] = {}
    default: Outcome | None = None

    def outcome(self, job: MPIJob) -> Outcome | None:
        """Return the outcome decided for this job; None leaves it to the job's command."""
        for pattern, outcome in self.jobs.items():
            if fnmatchcase(job.name, pattern):
                return outcome
        return outcome_from_labels(job.labels) or self.default


def outcome_from_labels(labels: Mapping[str, str]) -> Outcome | None:
    """Return the outcome written into labels: `succeeds`, `hangs`, `fails`, `fails-137-on-1`."""
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
    """Return what each rank of the plan will do in this attempt."""
    outcome = script.outcome(plan.job)
    runs = {}
    for worker in plan.workers:
        for local, rank in enumerate(worker.ranks):
            env = rank_env(plan, worker.index, rank, local) | {"MPIJOB_ATTEMPT": str(attempt)}
            runs[rank] = (
                outcome.rank_run(env, attempt) if outcome else shell_sim.simulate(_argv(plan.job, rank), env)
            )
    return runs


def rank_env(plan: Plan, worker: int, rank: int, local: int) -> dict[str, str]:
    """Return the environment of one rank."""
    return {
        **plan.env,
        "MPIJOB_RANK": str(rank),
        "MPIJOB_WORLD": str(plan.world),
        "MPIJOB_WORKER": str(worker),
        "MPIJOB_LOCAL_RANK": str(local),
        command_line.GROUP: plan.workers[worker].group,
    }


def _argv(job: MPIJob, rank: int) -> tuple[str, ...]:
    for part in job.programs:
        if rank < part.ranks:
            return (*part.command, *part.args)
        rank -= part.ranks
    return job.argv
