"""What the unit tests of the Slurm engine share: a host that answers from a table, and jobs' files as they would lie.

Answers have the shape that Slurm's own commands gave on the test bed; the real twin of the host is `tests/e2e/slurm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.host import SECONDS, Answer, Host
from mpijob.backends.slurm.jobs.derive import Seen
from mpijob.backends.slurm.jobs.job_files import JobDirectories, JobFiles, Place
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.poll import Poll
from mpijob.formats.launch import hostfile
from mpijob.formats.slurm import queries
from mpijob.formats.slurm.queries import FIELD, RECORD, Row, Rows
from mpijob.model import Family, JobRef, MPIJob, Plan, Resources
from mpijob.model.platform.slurm import Limit, NodeRoom, Partition, SlurmFacts

BEGIN = 1_763_400_000.0  # when the jobs of these tests were submitted
UID = "0123456789abcdef"
NUMBER = "67"
Reply = Answer | str | Exception | Callable[[Sequence[str]], "str | Answer"]

_QUEUED = {
    "%A": NUMBER, "%F": NUMBER, "%K": "N/A", "%j": "solve", "%u": "alice", "%a": "science", "%P": "main",
    "%q": "normal", "%T": "RUNNING", "%r": "None", "%D": "2", "%C": "4", "%N": "n[1-2]", "%V": f"{BEGIN:.0f}",
    "%S": f"{BEGIN + 5:.0f}", "%e": "N/A", "%l": "1:00:00", "%Q": "1000", "%Z": "/home/alice", "%o": "/x/script",
    "%i": NUMBER, "%k": "(null)",
}  # fmt: skip
_ACCOUNTED = {
    "jobidraw": NUMBER, "jobid": NUMBER, "jobname": "solve", "user": "alice", "account": "science",
    "partition": "main", "qos": "normal", "state": "COMPLETED", "reason": "None", "nnodes": "2", "ncpus": "4",
    "nodelist": "n[1-2]", "submit": f"{BEGIN:.0f}", "start": f"{BEGIN + 5:.0f}", "end": f"{BEGIN + 65:.0f}",
    "timelimit": "01:00:00", "workdir": "/home/alice", "exitcode": "0:0", "derivedexitcode": "0:0", "maxrss": "",
    "cputimeraw": "240", "totalcpu": "00:01.500", "alloctres": "billing=4,cpu=4,mem=8G,node=2", "comment": "",
}  # fmt: skip


class FakeHost(Host):
    """A login node that answers by how a command begins; it notes what it was asked."""

    def __init__(self, root: Path, **replies: Reply) -> None:
        super().__init__(root)
        self.replies: dict[str, Reply] = dict(replies)
        self.asked: list[tuple[str, ...]] = []
        self.pushed: list[str] = []
        self.terminals: list[tuple[str, ...]] = []
        self.variables: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "HOME": "/home/alice", "USER": "alice"}

    def environ(self) -> Mapping[str, str]:
        """Return the variables of a user who has few."""
        return self.variables

    def call(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        seconds: float = SECONDS,
        bare: bool = False,
    ) -> Answer:
        """Answer from the table; a command that is not in it is one that this machine does not have."""
        self.asked.append(tuple(argv))
        reply = self.replies.get(argv[0].replace("-", "_"), Answer(127, "", f"{argv[0]}: not found"))
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            reply = reply(argv)
        return Answer(0, reply, "") if isinstance(reply, str) else reply

    def terminal(self, argv: Sequence[str]) -> int:
        """Note what would have had the terminal, which ends with 7."""
        self.terminals.append(tuple(argv))
        return 7

    def push(self, place: str) -> None:
        """Note what would be copied to the nodes."""
        self.pushed.append(place)

    def count(self, program: str) -> int:
        """Return how often a command was called."""
        return sum(argv[0] == program for argv in self.asked)


def squeue(*jobs: Mapping[str, str]) -> str:
    """Return what squeue prints for jobs, each given by what differs from a running one, in the format asked for."""
    form = next(word for word in queries.squeue() if word.startswith("--format=")).removeprefix("--format=")
    lines = []
    for job in jobs:
        cells = {**_QUEUED, "%F": job.get("%A", NUMBER), **job}
        lines.append(
            RECORD + FIELD.join(cells[code] for code in form.removeprefix(RECORD).split(FIELD)) + "\n"
        )
    return "".join(lines)


def sacct(*jobs: Mapping[str, str]) -> str:
    """Return what sacct prints for jobs, each given by what differs from one that succeeded."""
    fields = queries.sacct(["1"])[-1].removeprefix("--format=").split(",")
    every = ({**_ACCOUNTED, "jobid": job.get("jobidraw", NUMBER), **job} for job in jobs)
    return "".join(FIELD.join(cells[name] for name in fields) + "\n" for cells in every)


def row(**cells: str) -> Row:
    """Return a row of squeue, by the letters of its fields: `row(T="PENDING", r="Priority")`."""
    told = {f"%{letter}": value for letter, value in cells.items()}
    return Rows(squeue(told))[told.get("%A", NUMBER)]


def ended(**cells: str) -> Row:
    """Return a row of sacct, by the names of its fields."""
    return [*queries.accounted(sacct(cells))][-1]


def a_job(**fields: Any) -> MPIJob:
    """Return a small job, with what differs."""
    resources = Resources(cpu="1", memory="1Gi")
    base: dict[str, Any] = {
        "name": "solve",
        "command": ("./solve",),
        "workers": 2,
        "slots": 1,
        "resources": resources,
    }
    return MPIJob(**base | fields)


def a_plan(job: MPIJob | None = None, **fields: Any) -> Plan:
    """Return the plan of a job, as the engine would have stored it."""
    job = job or a_job()
    workers = hostfile.place_ranks(job, [f"{job.name}-worker-{index}" for index in range(job.workers)])
    base = {
        "job": job, "uid": UID, "engine": "slurm", "family": Family.MPICH, "family_version": "4.1",
        "workers": workers, "world": job.world, "hostfile": "", "launch": ("srun",), "env": {}, "launcher": "srun",
        "batch_script": "#!/bin/sh\n",
    }  # fmt: skip
    return Plan(**base | fields)  # type: ignore[arg-type]  # any field


def a_node(name: str, cpus: int = 4, memory_mib: int = 8192, gpus: int = 0, **fields: Any) -> NodeRoom:
    """Return a node of which everything is free."""
    free = {"free_cpus": cpus, "free_memory_mib": memory_mib, "free_gpus": gpus}
    return NodeRoom(name=name, cpus=cpus, memory_mib=memory_mib, gpus=gpus, **free | fields)


def a_cluster(
    *limits: Limit, nodes: int = 4, partition: Partition | None = None, **fields: Any
) -> SlurmFacts:
    """Return a cluster of one partition with four nodes, and what differs."""
    known = {
        "partition": partition or Partition(name="main", default=True, nodes=nodes, cpus=4 * nodes),
        "partitions": ("main", "short"),
        "nodes": tuple(a_node(f"n{number}") for number in range(1, nodes + 1)),
        "limits": limits,
        "mpi": ("none", "pmi2"),
    }
    return SlurmFacts(**known | fields)  # type: ignore[arg-type]  # any field


class Submitted:
    """The directory of a job that was submitted: its files are written as the allocation's scripts write them."""

    def __init__(
        self, host: Host, plan: Plan | None = None, number: str = NUMBER, created: float = BEGIN
    ) -> None:
        self.host, self.plan = host, plan or a_plan()
        job = self.plan.job
        self.place = Place(int(created * 1e6), job.namespace, job.name, 1, self.plan.uid)
        self.path = host.root / self.place.folder
        self.path.mkdir(parents=True)
        (self.path / "plan.json").write_bytes(msgspec.json.encode(self.plan))
        if number:
            (self.path / "slurm").write_text(number)
        (host.root / "order").mkdir(exist_ok=True)
        (host.root / self.place.line).touch()

    @property
    def ref(self) -> JobRef:
        """The job's address."""
        return self.place.ref

    @property
    def files(self) -> JobFiles:
        """The files as they are now."""
        return JobFiles(self.host, self.place)

    def journal(self, *lines: str, attempt: int = 1, node: str = "") -> None:
        """Add lines to a journal; each begins with the seconds since the job was submitted."""
        path = self.path / f"a{attempt}" / (f"node-{node}" if node else "journal")
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as out:
            if path.stat().st_size == 0:
                out.write(f"0.00 clock ahead={BEGIN * 100:.0f} skew=0\n")
            out.writelines(f"{line}\n" for line in lines)

    def began(self, attempt: int = 1, at: float = 5) -> None:
        """Let the launcher have started, and each of two ranks have said who it is."""
        self.journal(
            f"{at} start job={NUMBER} restart={attempt - 1} nodes=n[1-2]", f"{at} launch", attempt=attempt
        )
        for rank in (0, 1):
            hello = f"{at + 1} hello rank={rank} size=2 slot=0 host=n{rank + 1} pid=40{rank} gpus="
            self.journal(hello, attempt=attempt, node=f"n{rank + 1}")

    def left(self, *codes: int, at: float = 65, attempt: int = 1, end: bool = True) -> None:
        """Let the ranks have ended with these codes, one after the other, and then the launcher with the first bad."""
        for rank, code in enumerate(codes):
            line = f"{at + rank / 10} exit rank={rank} code={code}"
            self.journal(line, attempt=attempt, node=f"n{rank + 1}")
        if end:
            code = next((code for code in codes if code), 0)
            self.journal(f"{at + 1} end code={code}", attempt=attempt)

    def acted(self, verb: str, at: float) -> None:
        """Let its owner have asked for something."""
        with (self.path / "acts").open("a") as out:
            out.write(f"{BEGIN + at:.3f} {verb}\n")

    def seen(
        self,
        row: Row | None = None,
        *,
        answered: bool = True,
        at: float = 100,
        silent: str = "",
        said: bytes = b"",
    ) -> Seen:
        """Return what is known of it."""
        files = self.files
        numbers = files.attempts()
        attempt = files.attempt(numbers[-1]) if numbers else None
        return Seen(files, attempt, row, answered, BEGIN + at, silent, said)


def a_reader(host: FakeHost, root: Path) -> JobReader:
    """Return what reads jobs by a host's answers; what is kept between processes lies below `root`."""
    client = SlurmClient(host)
    return JobReader(client, JobDirectories(host), Poll(client, root / "asked"), "")
