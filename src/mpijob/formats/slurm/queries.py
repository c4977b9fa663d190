"""Slurm's commands and the parsers of their output: squeue, sacct, scontrol, sinfo, sacctmgr."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from mpijob.formats.convert.header import units
from mpijob.formats.slurm import job_states
from mpijob.formats.slurm.job_states import JobState
from mpijob.model import StepState
from mpijob.model.platform.slurm import Limit, NodeRoom, Partition

# Named text fields and not --json: in Slurm 22.05 that ignores the selected jobs, hides exit codes, and changes its
# shape in later releases. Job names and comments may contain any other separator.
RECORD, FIELD = "\x1e", "\x1f"
# Seconds since the epoch: other formats have no time zone.
TIMES = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
_QUEUE = (
    ("number", "%A"), ("array", "%F"), ("task", "%K"), ("name", "%j"), ("user", "%u"), ("account", "%a"),
    ("partition", "%P"), ("qos", "%q"), ("state", "%T"), ("reason", "%r"), ("node_count", "%D"), ("cpus", "%C"),
    ("nodes", "%N"), ("submitted", "%V"), ("started", "%S"), ("ended", "%e"), ("limit", "%l"), ("priority", "%Q"),
    ("directory", "%Z"), ("command", "%o"), ("job", "%i"), ("comment", "%k"),
)  # fmt: skip
_ACCOUNTING = (
    ("number", "jobidraw"), ("array", "jobid"), ("name", "jobname"), ("user", "user"), ("account", "account"),
    ("partition", "partition"), ("qos", "qos"), ("state", "state"), ("reason", "reason"), ("node_count", "nnodes"),
    ("cpus", "ncpus"), ("nodes", "nodelist"), ("submitted", "submit"), ("started", "start"), ("ended", "end"),
    ("limit", "timelimit"), ("directory", "workdir"), ("exit", "exitcode"), ("worst", "derivedexitcode"),
    ("memory", "maxrss"), ("cpu_seconds", "cputimeraw"), ("used_cpu", "totalcpu"), ("tres", "alloctres"),
    ("comment", "comment"),
)  # fmt: skip
_NODES = (
    "PartitionName",
    "NodeHost",
    "StateLong",
    "CPUsState",
    "Memory",
    "AllocMem",
    "Gres",
    "GresUsed",
    "Features",
)
_WIDTH = 255
_NOT_USABLE = ("down", "drain", "fail", "maint", "unk", "inval", "reboot", "future", "power", "planned_down")
# The beginning of the comment of our jobs.
_OURS = '{"mpijob":"'
_NONE = ("", "N/A", "None", "Unknown", "(null)", "NONE", "INVALID", "None assigned", "n/a")
_PART = re.compile(r"(\d+)\+[1-9]\d*")
_GPUS = re.compile(r"(?:^|,)(?:gres/|gres:)?gpu(?::(?P<kind>[^:(,=]+))?[:=](?P<count>\d+)")


class Row(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One job in squeue or sacct; times are seconds since the epoch, None if unknown."""

    number: str
    array: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: JobState = JobState.UNKNOWN
    by: str = ""
    reason: str = ""
    node_count: int = 0
    cpus: int = 0
    nodes: str = ""
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None
    limit_seconds: float | None = None
    priority: int = 0
    directory: str = ""
    command: str = ""
    comment: str = ""
    exit: str = ""
    worst: str = ""
    memory_bytes: int = 0
    used_cpu_seconds: float = 0.0
    tres: str = ""

    @property
    def ending(self) -> JobState | None:
        """How the job has ended, None while that is not known."""
        return job_states.ending(self.state, self.reason)

    def sentence(self) -> str:
        """Return a sentence on how Slurm ended the job."""
        limit = "" if self.limit_seconds is None else units.clock(self.limit_seconds)
        number = self.array or self.number
        return job_states.sentence(
            self.ending or self.state, number, limit=limit, nodes=self.nodes, by=self.by
        )


def squeue(*, jobs: Iterable[str] = (), users: Iterable[str] = (), every: bool = False) -> tuple[str, ...]:
    """Return the command for jobs in Slurm's memory, with those that ended recently (MinJobAge)."""
    form = RECORD + FIELD.join(code for _, code in _QUEUE)
    chosen = [f"--jobs={','.join(jobs)}"] if jobs else []
    chosen += [f"--users={','.join(users)}"] if users else [] if every or jobs else ["--me"]
    return ("squeue", "--noheader", "--array", "--states=all", *chosen, f"--format={form}")


def sacct(jobs: Iterable[str] = (), *, since: str = "", steps: bool = False) -> tuple[str, ...]:
    """Return the command for jobs in the accounting, with each run of a requeued one and, on request, `steps`."""
    fields = ",".join(code for _, code in _ACCOUNTING)
    # The default start time is midnight. With --jobs, sacct has none.
    chosen = [f"--jobs={','.join(jobs)}"] if jobs else [f"--starttime={since or 'now-7days'}"]
    return ("sacct", "--noheader", "--parsable2", f"--delimiter={FIELD}", "--duplicates",
            *([] if steps else ["--allocations"]), *chosen, f"--format={fields}")  # fmt: skip


class Rows(Mapping[str, Row]):
    """The jobs in squeue's output by number; each is parsed at its first use, since there may be thousands."""

    def __init__(self, text: str = "") -> None:
        records = ((record.partition(FIELD)[0], record) for record in text.split(RECORD)[1:])
        self._raw = {number: record for number, record in records if number.isdecimal()}
        # The other components of heterogeneous jobs, by the first one's number.
        self._parts: dict[str, list[str]] = {}
        for number in [*self._raw]:
            if leader := _leader(_cell(self._raw[number])):
                self._parts.setdefault(leader, []).append(self._raw.pop(number))
        self._known: dict[str, Row] = {}

    def __getitem__(self, number: str) -> Row:
        if number not in self._known:
            parts = [_queued(record) for record in self._parts.get(number, ())]
            self._known[number] = _whole_job(_queued(self._raw[number]), parts)
        return self._known[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def ours(self) -> Iterator[tuple[str, str]]:
        """Yield number and uid of each job of ours, by the comment."""
        for number, record in self._raw.items():
            comment = record[record.rfind(FIELD) + 1 :]
            if comment.startswith(_OURS):
                yield number, comment[len(_OURS) :].partition('"')[0]


def _queued(record: str) -> Row:
    cells = record.rstrip("\n").split(FIELD)
    return _row(dict(zip((name for name, _ in _QUEUE), cells, strict=False)))


def _cell(record: str) -> str:
    """Return squeue's job ID in a record: `5`, `5_2`, or `5+1` for a component."""
    cells = record.rsplit(FIELD, 2)
    return cells[1] if len(cells) == 3 else ""


def _leader(job: str) -> str:
    """Return the number of the heterogeneous job that a component belongs to, "" for a first component or any other
    job.
    """
    found = _PART.fullmatch(job)
    return found[1] if found else ""


def _whole_job(first: Row, others: Sequence[Row]) -> Row:
    """Return a heterogeneous job as one row: the first component with the nodes and CPUs of all."""
    if not others:
        return first
    rows = (first, *others)
    return msgspec.structs.replace(
        first,
        nodes=",".join(row.nodes for row in rows if row.nodes),
        node_count=sum(row.node_count for row in rows),
        cpus=sum(row.cpus for row in rows),
    )


def accounted(text: str) -> Iterator[Row]:
    """Yield the jobs (or steps) in sacct's output; of a requeued job each run, the last one last.

    A heterogeneous job is one row: its first component with the nodes and CPUs of its last run.
    """
    # splitlines() would also split at control characters and Unicode line breaks in names.
    lines = (line.split(FIELD) for line in text.split("\n"))
    records = [fields for fields in lines if len(fields) >= len(_ACCOUNTING) - 1]
    parts: dict[str, dict[str, Row]] = {}
    for fields in records:
        if leader := _leader(fields[1]):
            parts.setdefault(leader, {})[fields[1]] = _counted(fields)
    for fields in records:
        if not _leader(fields[1].partition(".")[0]):
            yield _whole_job(_counted(fields), [*parts.get(fields[0], {}).values()])


def _counted(fields: Sequence[str]) -> Row:
    return _row(dict(zip((name for name, _ in _ACCOUNTING), fields, strict=False)))


def steps(rows: Iterable[Row]) -> tuple[StepState, ...]:
    """Return a job's steps in the accounting: one for each srun or mpirun in its script."""
    found = []
    for row in rows:
        number = row.number.partition(".")[2]
        if number.isdigit():
            code = job_states.exit_code(row.exit)[0] if row.state.final else None
            found.append(StepState(int(number), row.name, row.cpus, started=row.started or 0.0, finished=row.ended,
                                   exit_code=code, peak_bytes=row.memory_bytes))  # fmt: skip
    return tuple(found)


def _row(fields: Mapping[str, str]) -> Row:
    state = fields.get("state", "")
    array, task = fields.get("array", ""), fields.get("task", "")
    if task and task not in _NONE:
        array = f"{array}_{task}"
    return Row(
        number=fields.get("number", ""),
        array=array if array != fields.get("number", "") else "",
        **{name: _word(fields.get(name, "")) for name in _WORDS},
        state=job_states.read(state),
        by=state.partition(" by ")[2],
        node_count=_whole(fields.get("node_count", "")),
        cpus=_whole(fields.get("cpus", "")),
        submitted=_time(fields.get("submitted", "")) or 0.0,
        started=_time(fields.get("started", "")),
        ended=_time(fields.get("ended", "")),
        limit_seconds=seconds(fields.get("limit", "")),
        priority=_whole(fields.get("priority", "")),
        reason=fields.get("reason", ""),
        comment=fields.get("comment", ""),
        memory_bytes=_bytes(fields.get("memory", "")),
        used_cpu_seconds=_used(fields.get("used_cpu", "")),
    )


_WORDS = (
    "name",
    "user",
    "account",
    "partition",
    "qos",
    "nodes",
    "directory",
    "command",
    "exit",
    "worst",
    "tres",
)


def _word(text: str) -> str:
    return "" if text in _NONE else text


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _time(text: str) -> float | None:
    return float(text) if 0 < _whole(text) < 1 << 40 else None


def seconds(text: str) -> float | None:
    """Return a time limit in seconds, None for unlimited."""
    return (
        None
        if text in _NONE or text.upper() in ("UNLIMITED", "INFINITE", "PARTITION_LIMIT")
        else units.seconds(text)
    )


def _used(text: str) -> float:
    """Return `1-02:03:04.5` in seconds."""
    whole, _, fraction = text.partition(".")
    found = units.seconds(whole if ":" in whole else f"0:{whole}") if whole else None
    return (found or 0.0) + (float(f"0.{fraction}") if fraction.isdecimal() else 0.0)


def _bytes(text: str) -> int:
    """Return Slurm's size (`12345K`, `1.5G`, or plain bytes)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)n?c?", text)
    return int(float(match[1]) * 1024 ** " KMGTP".index(match[2] or " ")) if match else 0


def _mib(text: str) -> int:
    return _bytes(text if text[-1:].isalpha() else f"{text}M") >> 20


# -- the cluster -------------------------------------------------------------------------------------
def named_fields(line: str) -> dict[str, str]:
    """Return the fields of a line of `scontrol -o show`: NAME=VALUE; values may contain blanks."""
    found: dict[str, str] = {}
    last = ""
    for part in line.rstrip().split(" "):
        name, equals, value = part.partition("=")
        if equals and name:
            found[name], last = value, name
        elif last:
            found[last] += f" {part}"
    return found


def configuration(text: str) -> dict[str, str]:
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def partitions(text: str) -> tuple[Partition, ...]:
    return tuple(
        _partition(named_fields(line)) for line in text.splitlines() if line.startswith("PartitionName=")
    )


def _partition(fields: Mapping[str, str]) -> Partition:
    def names(field: str) -> tuple[str, ...]:
        text = fields.get(field, "ALL")
        return () if text in (*_NONE, "ALL") else tuple(text.split(","))

    def number(field: str) -> int | None:
        return _whole(fields[field]) if fields.get(field, "").isdecimal() else None

    return Partition(
        name=fields["PartitionName"],
        default=fields.get("Default") == "YES",
        state=fields.get("State", "UP"),
        nodes=number("TotalNodes") or 0,
        cpus=number("TotalCPUs") or 0,
        max_seconds=seconds(fields.get("MaxTime", "")),
        default_seconds=seconds(fields.get("DefaultTime", "")),
        max_nodes=number("MaxNodes"),
        min_nodes=number("MinNodes") or 0,
        max_memory_mib=number("MaxMemPerNode"),
        accounts=names("AllowAccounts"),
        denied_accounts=names("DenyAccounts"),
        qos=names("AllowQos"),
        denied_qos=names("DenyQos"),
        whole_nodes=fields.get("OverSubscribe") == "EXCLUSIVE",
    )


def sinfo() -> tuple[str, ...]:
    """Return the command for the nodes of all partitions."""
    # sinfo --Format has no separators: fields have fixed widths, and longer values are cut off.
    fields = ",".join(f"{name}:{_WIDTH}" for name in _NODES)
    return ("sinfo", "--noheader", "--Node", f"--Format={fields}")


def partition_cpus() -> tuple[str, ...]:
    """Return the command for the idle CPUs of each partition."""
    return ("sinfo", "--noheader", "--format=%R|%C")


def idle_cpus(text: str) -> dict[str, int]:
    """Return the idle CPUs of each partition from `NAME|allocated/idle/other/total`."""
    found = {}
    for line in text.splitlines():
        name, _, counts = line.partition("|")
        parts = counts.strip().split("/")
        if len(parts) == 4 and parts[1].isdecimal():
            found[name] = _whole(parts[1])
    return found


def nodes(text: str, partition: str) -> tuple[NodeRoom, ...]:
    """Return the nodes of one partition from sinfo's output."""
    found = []
    for line in text.splitlines():
        cells = [line[at : at + _WIDTH].strip() for at in range(0, len(line), _WIDTH)]
        if len(cells) >= len(_NODES) and cells[0] == partition:
            found.append(_node(dict(zip(_NODES, cells, strict=False))))
    return tuple(found)


def _node(fields: Mapping[str, str]) -> NodeRoom:
    _, idle, other, total = (fields["CPUsState"].split("/") + ["0"] * 4)[:4]
    usable = (
        not fields["StateLong"].rstrip("*~#!%$@^-+").startswith(_NOT_USABLE)
        and "*" not in fields["StateLong"]
    )
    usable = usable and "drain" not in fields["StateLong"]
    memory, gpus = _whole(fields["Memory"]), gpu_count(fields["Gres"])
    return NodeRoom(
        name=fields["NodeHost"],
        cpus=_whole(total) - _whole(other) if usable else _whole(total),
        memory_mib=memory,
        gpus=gpus,
        free_cpus=_whole(idle) if usable else 0,
        free_memory_mib=max(0, memory - _whole(fields["AllocMem"])) if usable else 0,
        free_gpus=max(0, gpus - gpu_count(fields["GresUsed"])) if usable else 0,
        features=tuple(part for part in fields["Features"].split(",") if part not in _NONE),
        usable=usable,
    )


def gpu_count(text: str) -> int:
    """Return the number of GPUs in a list of GRES: `gpu:a100:4(S:0-1)`, `gres/gpu=2`."""
    plain = re.sub(r"\([^)]*\)", "", text)
    return sum(
        int(match["count"]) for match in _GPUS.finditer(plain) if not ("gres/" in plain and match["kind"])
    )


def held_memory(tres: str) -> int:
    """Return the memory in a list of allocated TRES, in bytes."""
    return _tres(tres).get("mem", 0) << 20


_ASSOCIATION = (
    "account",
    "partition",
    "qos",
    "defaultqos",
    "maxjobs",
    "maxsubmit",
    "maxtres",
    "maxwall",
    "grptres",
)
_QOS = ("name", "priority", "maxtresperjob", "maxwall", "maxjobsperuser", "maxsubmitjobsperuser", "grptres")


def associations(user: str) -> tuple[str, ...]:
    """Return the command for a user's accounts and QOS, with their limits."""
    return (
        "sacctmgr",
        "--noheader",
        "--parsable2",
        "show",
        "assoc",
        f"user={user}",
        f"format={','.join(_ASSOCIATION)}",
    )


def all_qos() -> tuple[str, ...]:
    """Return the command for the limits of all QOS."""
    return ("sacctmgr", "--noheader", "--parsable2", "show", "qos", f"format={','.join(_QOS)}")


class Association(msgspec.Struct, frozen=True):
    """A user's association: an account, its QOS and limits; with a partition if it is for one only."""

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    limit: Limit


def read_associations(text: str) -> tuple[Association, ...]:
    found = []
    for fields in _records(text, _ASSOCIATION):
        owner = f"account {fields['account']}"
        limit = _limit(
            owner,
            fields["maxtres"],
            fields["maxwall"],
            fields["grptres"],
            fields["maxjobs"],
            fields["maxsubmit"],
        )
        qos = tuple(part for part in fields["qos"].split(",") if part)
        found.append(Association(fields["account"], fields["partition"], qos, fields["defaultqos"], limit))
    return tuple(found)


def read_qos(text: str) -> dict[str, Limit]:
    found = {}
    for fields in _records(text, _QOS):
        name, jobs, submitted = fields["name"], fields["maxjobsperuser"], fields["maxsubmitjobsperuser"]
        limit = _limit(
            f"QOS {name}", fields["maxtresperjob"], fields["maxwall"], fields["grptres"], jobs, submitted
        )
        found[name] = msgspec.structs.replace(limit, priority=_whole(fields["priority"]))
    return found


def _records(text: str, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) == len(names):
            yield dict(zip(names, cells, strict=True))


def _limit(owner: str, job: str, wall: str, group: str, jobs: str, submitted: str) -> Limit:
    most, together = _tres(job), _tres(group)
    return Limit(
        owner=owner,
        cpus=most.get("cpu"),
        nodes=most.get("node"),
        memory_mib=most.get("mem"),
        gpus=most.get("gres/gpu"),
        seconds=seconds(wall),
        jobs=_whole(jobs) if jobs.isdecimal() else None,
        submitted=_whole(submitted) if submitted.isdecimal() else None,
        group_cpus=together.get("cpu"),
        group_nodes=together.get("node"),
        group_memory_mib=together.get("mem"),
        group_gpus=together.get("gres/gpu"),
    )


def _tres(text: str) -> dict[str, int]:
    """Return `cpu=4,mem=8G,gres/gpu=2` as numbers; memory in MiB."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: _mib(value) if name == "mem" else _whole(value) for name, _, value in pairs}


_TEST_ONLY = re.compile(
    r"sbatch: Job (?P<number>\d+) to start at (?P<when>\S+) using (?P<cpus>\d+) processors on (?:nodes )?(?P<nodes>\S+)"
)


def start_estimate(text: str) -> float | None:
    """Return the estimated start in the output of `sbatch --test-only`, None without one."""
    match = _TEST_ONLY.search(text)
    return None if match is None else _moment(match["when"])


def _moment(text: str) -> float | None:
    """Return the time in a text that ignores SLURM_TIME_FORMAT; the command ran with TZ=UTC."""
    # Rarely needed: its import would delay every command.
    from datetime import UTC, datetime

    if text.isdecimal():
        return _time(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def launch_plugins(text: str) -> tuple[str, ...]:
    """Return the plugins in the output of `srun --mpi=list`: none, pmi2, pmix …"""
    words = [line.strip() for line in text.splitlines()]
    return tuple(word for word in words if re.fullmatch(r"[a-z][a-z0-9_]*", word))
