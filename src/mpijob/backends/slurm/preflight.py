"""The facts about a Slurm cluster before a job is planned: partitions, limits, nodes, launch plugins,
dependencies.

The commands run in parallel, and their output is cached in a file for the next job and process. A refusal is
checked again with fresh facts (`Facts.recalled`).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from mpijob.backends.slurm.jobs import poll
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.poll import Kept
from mpijob.backends.slurm.jobs.wait_estimate import Asked
from mpijob.formats.slurm import batch_script, cluster_facts, queries
from mpijob.formats.slurm.queries import Rows
from mpijob.model import Facts, JobRef, MPIJob
from mpijob.model.platform.slurm import SlurmFacts, layouts
from mpijob.model.spec.dependencies import After, Dependency, parsed
from mpijob.model.status.forecast import Forecast

_CACHE_SECONDS = 20.0


class Answers(Kept, frozen=True):
    """The output of the commands by name, without those that failed."""

    said: dict[str, str]


def facts(
    job: MPIJob, reader: JobReader, partition: str, user: str, *, fresh: bool, most_workers: int
) -> Facts:
    """Return the facts for admission for one user; `partition` is the one of the context."""
    answers, recalled = _answers(reader, user, fresh=fresh)
    slurm = cluster_facts.read(job, answers.said, partition)
    rows = reader.poll.snapshot().rows
    waiting = [row for row in rows.values() if row.state.waits] if fresh else []
    wait = _wait(job, slurm, reader, rows)
    return Facts(
        place=f"Slurm partition {slurm.partition.name}" if slurm.partition else "Slurm",
        capacity=slurm.capacity,
        free=slurm.free,
        room_known=bool(slurm.nodes),
        max_workers=most_workers,
        waiting_jobs=len(waiting),
        dependencies=tuple(_dependency(reader, job.namespace, parsed(entry)) for entry in job.after),
        wait_estimate_seconds=wait.seconds,
        wait_range_seconds=wait.span,
        wait_basis=wait.basis,
        slurm=slurm,
        recalled=recalled,
    )


def _answers(reader: JobReader, user: str, *, fresh: bool) -> tuple[Answers, bool]:
    """Return the output of the commands, and whether it is from the cache."""
    client, file = reader.client, reader.poll.folder / "facts"
    if not fresh and (known := poll.recall(file, Answers, _CACHE_SECONDS)):
        return known, True
    commands = cluster_facts.commands(user)
    with ThreadPoolExecutor(len(commands)) as pool:
        asked = {
            name: pool.submit(client.host.call, argv, env=queries.TIMES) for name, argv in commands.items()
        }
    done = {name: one.result() for name, one in asked.items()}
    said = {
        name: answer.out + answer.err * (name == "mpi") for name, answer in done.items() if not answer.code
    }
    # Nothing can be planned without them: raise Slurm's error.
    if "partitions" not in said:
        said["partitions"] = client.run(commands["partitions"])
    answers = Answers(time.time(), said)
    poll.keep(file, answers)
    return answers, False


def _wait(job: MPIJob, slurm: SlurmFacts, reader: JobReader, rows: Rows) -> Forecast:
    """Return the job's start time, as far as this user's own jobs show it."""
    if slurm.partition is None:
        return Forecast()
    shapes, most = layouts(job, slurm.nodes), slurm.max_seconds
    asked = batch_script.minutes(job, most)
    usual = slurm.partition.default_seconds
    new = Asked(
        partition=slurm.partition.name,
        cpus=sum(shape.nodes * shape.cpus_per_node for shape in shapes),
        limit_seconds=asked * 60.0 if asked else most if usual is None else usual,
        command=batch_script.command_key(job),
    )
    return reader.waits.of_new(rows, new)


def _dependency(reader: JobReader, namespace: str, after: After) -> Dependency:
    ref = JobRef(namespace, after.name)
    return Dependency.of(ref, reader.other(ref), after.end)
