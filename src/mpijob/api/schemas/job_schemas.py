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
    """An error: what happened, why, and how to fix it; `docs` is the troubleshooting page of the code."""

    code: str
    message: str
    hint: str
    docs: str
    findings: tuple[Finding, ...] = ()


class Session(msgspec.Struct, frozen=True):
    """The signed-in user; send `csrf` as the header X-MPIJob-CSRF with every request that changes something."""

    user: str
    csrf: str


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one-time token from the URL that `mpijob ui` printed."""

    token: str


class SignInLink(msgspec.Struct, frozen=True):
    """A new one-time token, to sign in another browser of the same user."""

    token: str


class JobRow(msgspec.Struct, frozen=True):
    """One job of the list; `why` explains why it failed or what it waits for.

    `cause` is the code of the failure, or of the first warning of a running job. `run` numbers the jobs of one name
    from 1; 0 if unknown. For a waiting job, `position` is its position in the queue, `starts_about` the estimated
    start time, and `wait_basis` the basis of the estimate, or the reason why there is none.
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
        """Return when the job released its resources, `now` if it has not."""
        return self.released or self.finished or now


class JobList(msgspec.Struct, frozen=True):
    """One page of jobs. `counts` has the number of jobs by phase under the same filters, except the phase filter.

    `namespaces`, `owners` and `types` list all values, independent of filters. `seen` is the time of the last contact
    with the engine.
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
    """Filters and order of the list. Repeated values of a filter are alternatives."""

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
    """Selects a job: the namespace, if the path has only a name, and the run of the name.

    `run` starts at 1, as in `NAME@RUN`; without `run` and `uid`, the newest job is selected.
    """

    namespace: str = ""
    uid: str = ""
    run: Number | None = None


class Which(Where, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Selects a job and one of its attempts; without `attempt`, the current state."""

    attempt: Number | None = None


class JobDetail(msgspec.Struct, frozen=True):
    """Details of one job; `yaml` is its job file, `commands` are equivalent commands of the CLI."""

    row: JobRow
    state: JobState
    spec: MPIJob
    yaml: str
    commands: dict[str, str]


class LogQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of log lines.

    `ranks` and `workers` can be repeated; `level` is the minimum level; `format` text is a download. `regex` shows
    only matching lines, `find` only highlights matches.
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
    """One attempt of a job; `exit_code` is that of the first failed rank, otherwise of the launcher."""

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
    """One run of a job name, with its attempts, oldest first; `deleted` is set if only its record is left.

    `address` is its name in every request: `NAME@RUN`.
    """

    run: int
    address: str
    row: JobRow
    deleted: float | None
    attempts: tuple[AttemptRow, ...]


class Runs(msgspec.Struct, frozen=True):
    """All runs of a job name, newest first; each submission and each retry is a run."""

    items: tuple[RunRow, ...]


class LogRow(msgspec.Struct, frozen=True):
    """One log line. `time` is in milliseconds; `at` is in nanoseconds as text, for links to a line."""

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
    """A batch of log lines; `problem` ends a stream that failed."""

    lines: tuple[LogRow, ...] = ()
    problem: Problem | None = None


class Events(msgspec.Struct, frozen=True):
    """Events, oldest first."""

    items: tuple[Event, ...]


class Artifacts(msgspec.Struct, frozen=True):
    """Output files of a job."""

    items: tuple[Artifact, ...]


class NodePlaces(msgspec.Struct, frozen=True):
    """Nodes of a job with a known zone or rack."""

    items: tuple[NodePlace, ...]


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job draft: a job file as text, or its fields as an object; `command_line` is split like in a shell."""

    yaml: str = ""
    job: dict[str, Any] | None = None
    command_line: str = ""


class Reading(msgspec.Struct, frozen=True):
    """The parsed draft: the job, its job file, and its command as one line."""

    job: MPIJob
    yaml: str
    command_line: str


class PlanAnswer(msgspec.Struct, frozen=True):
    """The plan, and a one-line summary."""

    plan: Plan
    summary: str


class FactsAnswer(msgspec.Struct, frozen=True):
    """Capacity, free resources and quota; `summary` is the same as text."""

    facts: Facts
    summary: str


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a copy: fields by path (`env.LR`), and a numbered fix of the diagnosis.

    An empty name selects the next free one; `replace` replaces the original job.
    """

    name: str = ""
    changes: dict[str, Any] = {}
    with_fix: Annotated[int, msgspec.Meta(ge=1)] | None = None
    replace: bool = False


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New number of workers of an elastic job."""

    workers: Annotated[int, msgspec.Meta(ge=1)]


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action on several jobs, each as `namespace/name`."""

    action: Literal["cancel", "suspend", "resume", "retry", "delete"]
    jobs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=200)]


class Done(msgspec.Struct, frozen=True):
    """Result of the action for one job; `problem` is null if it succeeded."""

    job: str
    problem: Problem | None


class BulkAnswer(msgspec.Struct, frozen=True):
    """Results of the action for all jobs."""

    items: tuple[Done, ...]


class TemplateRow(msgspec.Struct, frozen=True):
    """One job template; `origin` is `own`, `shared` (by `namespace`) or `library`.

    For a shared template, `owner` is the user who saved it last and `changed` the time. `writable` is true if the
    user may change and delete it; `blocker` is the reason why its job cannot run here, or empty.
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
    """Templates that the user may see in a namespace.

    `may_share` is true if the user may share templates there; `notice` explains missing shared templates.
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
    """Health of the server."""

    ok: bool = True


class MetricsQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Maximum number of points, and whether to return each worker separately."""

    points: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 720
    each_worker: bool = False


class JobAccount(msgspec.Struct, frozen=True):
    """Usage of a job, and its cost if rates are set; `estimate` is from earlier runs of its program."""

    account: Account | None
    cost: float | None
    currency: str
    estimate: Estimate | None


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs, each as `namespace/name`."""

    job: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Training progress from the log of rank 0: `progress` from 0 to 1, `eta` in seconds."""

    job: str
    progress: float | None
    step: float | None
    steps: float | None
    epoch: float | None
    epochs: float | None
    eta: float | None


class ProgressList(msgspec.Struct, frozen=True):
    """Progress of jobs; jobs without progress are omitted."""

    items: tuple[JobProgress, ...]


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to resume: the last revision received, same as the header Last-Event-ID."""

    rev: str = ""


class Delta(msgspec.Struct, frozen=True):
    """Changes since the last revision; `trouble` is the reason if updates are interrupted.

    `delete` has removed rows as `NAMESPACE/UID`. `seen` is the time of the last contact with the engine.
    """

    rev: str
    upsert: tuple[JobRow, ...] = ()
    delete: tuple[str, ...] = ()
    trouble: Problem | None = None
    seen: float = 0.0


class ArtifactQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Path of an output file."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class FieldHelp(msgspec.Struct, frozen=True):
    """Meaning of a field of a job, as in `mpijob explain`."""

    text: str
    example: str
    words: tuple[str, ...]


class Fields(msgspec.Struct, frozen=True):
    """Every field of a job by its path (`resources.memory`)."""

    items: dict[str, FieldHelp]
