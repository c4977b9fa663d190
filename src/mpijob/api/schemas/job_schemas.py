"""What is asked and answered: the values of the API that the model does not have itself.

Everything else (a job, its state, a plan, findings) is the model's own class; the OpenAPI document and with it the
page's types are made from both. Times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from mpijob.accounting.estimates import Estimate
from mpijob.errors import Finding
from mpijob.model import (
    Artifact,
    Event,
    Facts,
    JobState,
    LauncherPhase,
    LauncherState,
    Level,
    MPIJob,
    Phase,
    Plan,
    Role,
)
from mpijob.model.status.accounts import Account
from mpijob.model.status.records import Mark, NodePlace

Action = Literal["cancel", "suspend", "resume", "retry", "clone", "delete"]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]


class Problem(msgspec.Struct, frozen=True):
    """What went wrong, why, and how to fix it; `docs` is the page of the code."""

    code: str
    message: str
    hint: str
    docs: str
    findings: tuple[Finding, ...] = ()


class Session(msgspec.Struct, frozen=True):
    """Who is signed in; `csrf` goes into the header X-MPIJob-CSRF of everything that changes something."""

    user: str
    csrf: str


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one-time token of the address that `mpijob ui` printed."""

    token: str


class SignInLink(msgspec.Struct, frozen=True):
    """A new one-time token, for another browser of the same person."""

    token: str


class JobRow(msgspec.Struct, frozen=True):
    """One job as the list shows it; `why` says what failed or what it waits for.

    `cause` is the code of the failure, of a running job that of its first warning. `run` counts the jobs of one name
    from 1, 0 where nobody counted. Of one that waits, `position` is its place, `starts_about` when it will probably
    start, and `wait_basis` what that rests on, or why it is not known.
    """

    uid: str
    namespace: str
    name: str
    kind: str
    phase: Phase
    why: str
    cause: str
    owner: str
    queue: str
    engine: str
    mpi: str
    workers: int
    workers_ready: int
    ranks: int
    gpus: int
    attempt: int
    created: float
    started: float | None
    finished: float | None
    actions: tuple[Action, ...]
    released: float | None = None
    launcher: LauncherPhase | None = None
    run: int = 0
    position: int | None = None
    starts_about: float | None = None
    wait_basis: str = ""

    def held_until(self, now: float) -> float:
        """Return when the job let go of its room; `now` of one that has not."""
        return self.released or self.finished or now


class JobList(msgspec.Struct, frozen=True):
    """One page of jobs. `counts` has the phases under the same filters, the filter by phase left out.

    `namespaces`, `owners` and `types` are all there are, whatever the filters. `seen` is when the place itself was
    last heard.
    """

    items: tuple[JobRow, ...]
    total: int
    counts: dict[str, int]
    namespaces: tuple[str, ...]
    owners: tuple[str, ...]
    types: tuple[str, ...]
    after: str
    rev: str
    seen: float = 0.0


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs, in which order. Words given several times mean any of them."""

    namespace: str = ""
    status: tuple[Phase, ...] = ()
    type: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    queue: str = ""
    text: str = ""
    since: float | None = None
    until: float | None = None
    sort: Literal[
        "created", "-created", "name", "-name", "owner", "-owner", "phase", "-phase", "duration", "-duration"
    ] = "-created"
    after: str = ""
    limit: Limit = 50


Number = Annotated[int, msgspec.Meta(ge=1)]


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which job: the namespace where its address has the name alone, and which of the jobs that had the name.

    `run` counts them from 1, as the name `NAME@RUN` does; without `run` and `uid` the newest is meant.
    """

    namespace: str = ""
    uid: str = ""
    run: Number | None = None


class Which(Where, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which job, and which of its attempts; without one the job as it stands now."""

    attempt: Number | None = None


class JobDetail(msgspec.Struct, frozen=True):
    """Everything known of one job; `yaml` is its job file, `commands` do the same on the command line."""

    row: JobRow
    state: JobState
    spec: MPIJob
    yaml: str
    commands: dict[str, str]


class LogQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which lines. `ranks` and `workers` may be repeated; `level` is the least one; `format` text is a download.

    `regex` hides all other lines, `find` only marks what it matches.
    """

    follow: bool = False
    roles: tuple[Role, ...] = ()
    workers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None
    tail: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    regex: str = ""
    previous: bool = False
    streams: tuple[str, ...] = ()
    level: Level | None = None
    before: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    after: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    find: str = ""
    tidy: bool = False
    fold: bool = False
    format: Literal["json", "text"] = "json"


class AttemptRow(msgspec.Struct, frozen=True):
    """One attempt of a job, as it ended or stands; `exit_code` is the first failed rank's, else the launcher's."""

    attempt: int
    phase: Phase
    reason: str
    why: str
    cause: str
    workers: str
    nodes: tuple[str, ...]
    exit_code: int | None
    queued: float | None
    started: float | None
    running: float | None
    finished: float | None
    launcher: LauncherState | None


class RunRow(msgspec.Struct, frozen=True):
    """One of the jobs that had a name, with its attempts, the first first; `deleted` is set where its record is left.

    `address` names it in every verb: `NAME@RUN`.
    """

    run: int
    address: str
    row: JobRow
    deleted: float | None
    attempts: tuple[AttemptRow, ...]


class Runs(msgspec.Struct, frozen=True):
    """Every job that has or had a name, newest first: each submission and each retry is one."""

    items: tuple[RunRow, ...]


class LogRow(msgspec.Struct, frozen=True):
    """One line. `time` is in milliseconds; `at` is the exact nanosecond as text, for links to a line."""

    time: float
    at: str
    source: str
    role: Role
    stream: str
    text: str
    worker: int | None = None
    rank: int | None = None
    attempt: int = 1
    level: Level | None = None
    marks: tuple[Mark, ...] = ()


class LogBatch(msgspec.Struct, frozen=True):
    """Some lines of a log, as they came; `problem` ends a stream that failed."""

    lines: tuple[LogRow, ...] = ()
    problem: Problem | None = None


class Events(msgspec.Struct, frozen=True):
    """What happened, in order."""

    items: tuple[Event, ...]


class Artifacts(msgspec.Struct, frozen=True):
    """The files that a job left."""

    items: tuple[Artifact, ...]


class NodePlaces(msgspec.Struct, frozen=True):
    """The nodes of a job of which zone or rack are known."""

    items: tuple[NodePlace, ...]


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job to be: a job file as text, or its fields as an object; `command_line` is split as a shell splits it."""

    yaml: str = ""
    job: dict[str, Any] | None = None
    command_line: str = ""


class Reading(msgspec.Struct, frozen=True):
    """A draft as it was understood: the job, the same as a job file, and its command as one line."""

    job: MPIJob
    yaml: str
    command_line: str


class PlanAnswer(msgspec.Struct, frozen=True):
    """Exactly what would run, and the sentence that says it in short."""

    plan: Plan
    summary: str


class FactsAnswer(msgspec.Struct, frozen=True):
    """What the place has, what is free, what the namespace may use; amounts also in words."""

    facts: Facts
    summary: str


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a copy has otherwise than the job: parts by path (`env.LR`), and a numbered fix of its diagnosis.

    "" as name takes the next free one; `replace` puts the copy in the place of the job itself.
    """

    name: str = ""
    changes: dict[str, Any] = {}
    with_fix: Annotated[int, msgspec.Meta(ge=1)] | None = None
    replace: bool = False


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many workers an elastic job is to have."""

    workers: Annotated[int, msgspec.Meta(ge=1)]


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action on several jobs, each as `namespace/name`."""

    action: Literal["cancel", "suspend", "resume", "retry", "delete"]
    jobs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=200)]


class Done(msgspec.Struct, frozen=True):
    """What became of one job of several; `problem` is null when it worked."""

    job: str
    problem: Problem | None


class BulkAnswer(msgspec.Struct, frozen=True):
    """What became of each."""

    items: tuple[Done, ...]


class TemplateRow(msgspec.Struct, frozen=True):
    """One template that a job can start from; `origin` is `own`, `shared` (by `namespace`) or `library`.

    Of a shared one `owner` saved it last, at `changed`. `writable` says whether it may be changed and deleted;
    `blocker` why its job could not run here, "" where it could.
    """

    name: str
    origin: str
    description: str
    yaml: str
    namespace: str = ""
    owner: str = ""
    changed: float = 0.0
    writable: bool = False
    workers: int = 0
    gpus: int = 0
    image: str = ""
    blocker: str = ""


class TemplateList(msgspec.Struct, frozen=True):
    """All templates that the user sees in a namespace.

    `may_share` says whether they may save some for it, `notice` why some that it shares may be missing.
    """

    items: tuple[TemplateRow, ...]
    may_share: bool = False
    notice: str = ""


class Capabilities(msgspec.Struct, frozen=True):
    """Features of this server, so that the web UI hides panels without data.

    `signs_in` is the way of signing in: the address that `mpijob ui` printed, or the cluster's login, which
    `sign_out` ends. `keeps_templates` is False if users cannot save templates; `/templates` has whether a
    namespace can.
    """

    version: str
    engine: str
    namespace: str
    user: str
    administrator: bool
    cluster: bool
    max_workers: int
    phases: tuple[str, ...]
    signs_in: Literal["address", "login"] = "address"
    sign_out: str = ""
    keeps_templates: bool = True


class Health(msgspec.Struct, frozen=True):
    """That the server answers."""

    ok: bool = True


class MetricsQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How finely: at most so many points in time; and whether each worker is wanted by itself."""

    points: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 720
    each_worker: bool = False


class JobAccount(msgspec.Struct, frozen=True):
    """What a job used, and what it cost so far where rates are set; `estimate` is from earlier runs of its program."""

    account: Account | None
    cost: float | None
    currency: str
    estimate: Estimate | None


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, each as `namespace/name`."""

    job: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, by the last lines of rank 0: `progress` from 0 to 1, `eta` in seconds."""

    job: str
    progress: float | None
    step: float | None
    steps: float | None
    epoch: float | None
    epochs: float | None
    eta: float | None


class ProgressList(msgspec.Struct, frozen=True):
    """How far jobs are; jobs without progress are left out."""

    items: tuple[JobProgress, ...]


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to resume: the last revision seen; same as the header Last-Event-ID."""

    rev: str = ""


class Delta(msgspec.Struct, frozen=True):
    """What a page lays over what it has; `trouble` says why nothing new may come.

    `delete` names rows that are gone as `NAMESPACE/UID`.
    `seen` is when the place itself was last heard: what the page shows is as old as that.
    """

    rev: str
    upsert: tuple[JobRow, ...] = ()
    delete: tuple[str, ...] = ()
    trouble: Problem | None = None
    seen: float = 0.0


class ArtifactQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which of the files that a job left."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class FieldHelp(msgspec.Struct, frozen=True):
    """Meaning of a field of a job, as in `mpijob explain`."""

    text: str
    example: str
    words: tuple[str, ...]


class Fields(msgspec.Struct, frozen=True):
    """Every field of a job by its path (`resources.memory`)."""

    items: dict[str, FieldHelp]
