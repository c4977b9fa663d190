"""What is asked and answered about drafts, templates, choices and advice; the jobs' own values are in `job_schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from mpijob.accounting.costs import Budget
from mpijob.accounting.estimates import Estimate
from mpijob.accounting.right_sizing import SizingReport
from mpijob.api.schemas.job_schemas import JobRow, Number, Which
from mpijob.api.schemas.overview_schemas import Waiting
from mpijob.client.convert.convert_jobs import Conversion
from mpijob.errors import Finding
from mpijob.model import MPIJob
from mpijob.model.status.overview import Line


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job file and the changes to apply: all fields (`job`), or fields by path (`changes`; null removes one).

    Without either, the text is only parsed.
    """

    yaml: str = ""
    job: dict[str, Any] | None = None
    changes: dict[str, Any] = {}


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """The job file after the change, with comments and unknown fields kept, and the parsed job.

    Errors are returned in `findings`, with field, line and column, and never fail the request. `job` is null if the
    text is not a job; fields that cannot be parsed have their defaults.
    """

    yaml: str
    job: MPIJob | None
    command_line: str
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]


class NewTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A template to save: private, or with `share` shared with a namespace ("" is the user's own)."""

    name: str
    yaml: str
    overwrite: bool = False
    share: bool = False
    namespace: str = ""


class TemplateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The template to delete: one of the user, or with `shared` one of a namespace ("" is the user's own)."""

    namespace: str = ""
    shared: bool = False


class Mend(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to run a job again: unchanged, or with a numbered fix of its diagnosis."""

    with_fix: Annotated[int, msgspec.Meta(ge=1)] | None = None


class InNamespace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The namespace; "" is the user's own."""

    namespace: str = ""


class AccuracyQuery(InNamespace, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The period: jobs of the last `days` days."""

    days: Annotated[float, msgspec.Meta(gt=0, le=400)] = 30.0


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions of the user in a namespace; `why` explains each missing verb."""

    namespace: str
    may: tuple[str, ...]
    why: dict[str, str]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: running and waiting jobs, recent median wait, and waiting jobs in order."""

    name: str
    namespace: str
    text: str
    running: int
    waiting: int
    waited_seconds: float | None
    ahead: tuple[Waiting, ...] = ()


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """Queues that the user may see, and the limits of their namespace."""

    namespace: str
    items: tuple[QueueRow, ...]
    lines: tuple[Line, ...]


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """Recommended resources and expected duration from earlier runs of the program; null without earlier runs."""

    counsel: SizingReport
    estimate: Estimate | None


class Budgets(msgspec.Struct, frozen=True):
    """Spending of namespaces against their budgets."""

    items: tuple[Budget, ...]


class CompareQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to compare, as `namespace/name` or `namespace/name@run`: two or more, or one with several attempts."""

    job: Annotated[tuple[str, ...], msgspec.Meta(max_length=10)] = ()
    attempt: Annotated[tuple[Number, ...], msgspec.Meta(max_length=10)] = ()


class PatternQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The period in days, and the minimum number of jobs for a pattern."""

    days: Annotated[float, msgspec.Meta(gt=0, le=400)] = 7.0
    least: Annotated[int, msgspec.Meta(ge=1)] = 2


class ToConvert(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A manifest or script (MPIJob, TrainJob, Slurm, PBS …) and the target format."""

    text: str
    to: Literal["job", "trainjob", "mpijob", "sbatch", "pbs"] = "job"
    image: str = ""


class Conversions(msgspec.Struct, frozen=True):
    """The converted jobs, with a report on every field."""

    items: tuple[Conversion, ...]


class ExportQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The format of the export: a job file, a manifest or a batch script.

    Values that look like secrets are masked, unless `values` is set.
    """

    format: Literal["yaml", "json", "trainjob", "mpijob", "sbatch", "pbs"] = "yaml"
    values: bool = False


class Opinion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rating of a help text; `topic` is a field, a code or a screen."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[\w./:-]+$")]
    helpful: bool


class Votes(msgspec.Struct, frozen=True):
    """Number of helpful and unhelpful ratings of one help text."""

    topic: str
    yes: int
    no: int


class Opinions(msgspec.Struct, frozen=True):
    """Ratings of all help texts."""

    items: tuple[Votes, ...]


class AttemptsAnswer(msgspec.Struct, frozen=True):
    """All jobs of this name, newest first; retries are new jobs of the same name."""

    items: tuple[JobRow, ...]
