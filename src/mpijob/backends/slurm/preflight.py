"""What a cluster says before a job is planned: partitions, limits, nodes, launch plugins, the jobs that it waits for.

Asked in parallel, and remembered for some seconds in a file, for the next job and the next process; a refusal is
judged anew over fresh facts (`Facts.recalled`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.wait_estimate import NewJob
from mpijob.errors import MpiJobError, NotFound
from mpijob.formats.slurm import batch_script, queries
from mpijob.formats.slurm.queries import Rows
from mpijob.model import Amounts, Facts, JobRef, MPIJob
from mpijob.model.platform.slurm import MIB, Limit, SlurmFacts, layout
from mpijob.model.spec.dependencies import After, Dependency, parsed
from mpijob.model.spec.enums import PRIORITIES
from mpijob.model.status.forecast import Forecast

_REMEMBERED_SECONDS = 20.0
_ASSOCIATIONS, _QOS = "accounts", "QOS"


class Answers(msgspec.Struct, frozen=True):
    """What the commands said, by name, and when; those that failed are left out."""

    time: float
    said: dict[str, str]


class Preflight:
    """Gathers the facts for one user."""

    def __init__(self, client: SlurmClient, folder: Path, partition: str) -> None:
        self._client, self._file, self._partition = client, folder / "facts", partition

    def facts(self, job: MPIJob, reader: JobReader, user: str, *, fresh: bool, most_workers: int) -> Facts:
        """Return what admission judges."""
        answers, recalled = self._answers(user, fresh=fresh)
        slurm = facts(job, answers.said, self._partition)
        rows = reader.poll.snapshot().rows
        waiting = [row for row in rows.values() if row.state.waits] if fresh else []
        wait = _wait(job, slurm, reader, rows)
        free = [node for node in slurm.nodes if node.usable]
        return Facts(
            place=f"Slurm partition {slurm.partition.name}" if slurm.partition else "Slurm",
            capacity=Amounts(
                float(sum(node.cpus for node in slurm.nodes)),
                sum(node.memory_mib for node in slurm.nodes) * MIB,
                sum(node.gpus for node in slurm.nodes),
            ),
            free=Amounts(
                float(sum(node.free_cpus for node in free)),
                sum(node.free_memory_mib for node in free) * MIB,
                sum(node.free_gpus for node in free),
            ),
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

    def _answers(self, user: str, *, fresh: bool) -> tuple[Answers, bool]:
        if not fresh and (known := self._kept()):
            return known, True
        commands = {
            "config": ("scontrol", "show", "config"),
            "partitions": ("scontrol", "-o", "show", "partition"),
            "nodes": queries.sinfo(),
            "mpi": ("srun", "--mpi=list"),
            _ASSOCIATIONS: queries.associations(user),
            _QOS: queries.all_qos(),
        }
        with ThreadPoolExecutor(len(commands)) as pool:
            asked = {
                name: pool.submit(self._client.host.call, argv, env=queries.TIMES)
                for name, argv in commands.items()
            }
        done = {name: one.result() for name, one in asked.items()}
        said = {
            name: answer.out + answer.err * (name == "mpi")
            for name, answer in done.items()
            if not answer.code
        }
        if "partitions" not in said:  # nothing can be planned without them: raise what Slurm said
            self._client.run(commands["partitions"])
        answers = Answers(time.time(), said)
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.write(self._file, msgspec.json.encode(answers))
        except OSError:
            return answers, False
        return answers, False

    def _kept(self) -> Answers | None:
        try:
            known = codec.decode(self._file.read_bytes(), Answers)
        except (OSError, msgspec.DecodeError):
            return None
        return known if 0 <= time.time() - known.time < _REMEMBERED_SECONDS else None


def _wait(job: MPIJob, slurm: SlurmFacts, reader: JobReader, rows: Rows) -> Forecast:
    """Return when the job would start, as far as this user's own jobs tell."""
    if slurm.partition is None:
        return Forecast()
    shape, most = layout(job, slurm.nodes), slurm.max_seconds
    asked = batch_script.minutes(job, most)
    usual = slurm.partition.default_seconds
    new = NewJob(
        partition=slurm.partition.name,
        cpus=shape.nodes * shape.cpus_per_node,
        limit_seconds=asked * 60.0 if asked else most if usual is None else usual,
        command=batch_script.command_key(job),
    )
    return reader.waits.of_new(rows, new)


def _dependency(reader: JobReader, namespace: str, after: After) -> Dependency:
    ref = JobRef(namespace, after.name)
    try:
        return Dependency.of(ref, reader.get(ref), after.end)
    except NotFound:
        return Dependency(ref, end=after.end)
    except MpiJobError:
        return Dependency(ref, message="Slurm is not responding, so its phase is unknown", end=after.end)


def facts(job: MPIJob, said: Mapping[str, str], usual: str) -> SlurmFacts:
    """Return what holds for this job, of all that the commands said; `usual` is the partition of the context."""
    partitions = queries.partitions(said["partitions"])
    wanted = job.queue or usual
    chosen = next((one for one in partitions if (one.name == wanted if wanted else one.default)), None)
    config = queries.configuration(said.get("config", ""))
    associations = queries.read_associations(said.get(_ASSOCIATIONS, ""))
    every = queries.read_qos(said.get(_QOS, ""))
    account = job.cost.get("account", "") or (associations[0].account if associations else "")
    mine = [
        one
        for one in associations
        if one.account == account and one.partition in ("", chosen.name if chosen else "")
    ]
    allowed = tuple(dict.fromkeys(name for one in mine for name in one.qos))
    qos = _qos(job, allowed)
    used = qos or next((one.default_qos for one in mine if one.default_qos), "")
    limits: list[Limit] = [one.limit for one in mine]
    limits += [every[used]] if used in every else []
    return SlurmFacts(
        cluster=config.get("ClusterName", ""),
        version=config.get("SLURM_VERSION", ""),
        partition=chosen,
        partitions=tuple(one.name for one in partitions),
        account=account,
        accounts=tuple(dict.fromkeys(one.account for one in associations)),
        qos=qos,
        all_qos=allowed,
        limits=tuple(limits),
        nodes=queries.nodes(said.get("nodes", ""), chosen.name) if chosen else (),
        mpi=queries.launch_plugins(said.get("mpi", "")),
        kill_wait_seconds=float((config.get("KillWait", "30").split() or ["30"])[0]),
        unread=tuple(name for name in (_ASSOCIATIONS, _QOS, "nodes") if name not in said),
    )


def _qos(job: MPIJob, allowed: tuple[str, ...]) -> str:
    """Return the QOS that a priority means here: the one of that name, else none."""
    names = {number: name for name, number in PRIORITIES.items()}
    name = job.priority if isinstance(job.priority, str) else names.get(job.priority, "")
    known_word = isinstance(job.priority, str) and job.priority not in PRIORITIES
    return name if name and (name in allowed or known_word) and (job.priority_number or known_word) else ""
