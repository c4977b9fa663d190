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
    """A job file, and what a form changes in it: all its fields (`job`), or some by path; null takes one out.

    With neither the text is only read.
    """

    yaml: str = ""
    job: dict[str, Any] | None = None
    changes: dict[str, Any] = {}


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """The text after the change, with its notes and unknown fields kept, and the job in it.

    What is wrong never stops the answer: it stands in `findings`, with field, line and column. `job` is null where
    the text is no job at all; fields that cannot be read have their default in it.
    """

    yaml: str
    job: MPIJob | None
    command_line: str
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]


class NewTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to start from later: kept for the user alone, or with `share` for a namespace ("" is the user's own)."""

    name: str
    yaml: str
    overwrite: bool = False
    share: bool = False
    namespace: str = ""


class TemplateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which template: an own one, or with `shared` the one that a namespace shares ("" is the user's own)."""

    namespace: str = ""
    shared: bool = False


class Mend(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a job is run again: as it was, or with one of the numbered fixes of its diagnosis."""

    with_fix: Annotated[int, msgspec.Meta(ge=1)] | None = None


class InNamespace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which namespace; "" is the user's own."""

    namespace: str = ""


class AccuracyQuery(InNamespace, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of the jobs of how many days."""

    days: Annotated[float, msgspec.Meta(gt=0, le=400)] = 30.0


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What the user may do in a namespace; `why` has, for each verb that is missing, the sentence that says so."""

    namespace: str
    may: tuple[str, ...]
    why: dict[str, str]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: how many jobs run and wait, recent median wait, and waiting jobs in order."""

    name: str
    namespace: str
    text: str
    running: int
    waiting: int
    waited_seconds: float | None
    ahead: tuple[Waiting, ...] = ()


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """The queues that the user sees, and the limits of the namespace that they are in."""

    namespace: str
    items: tuple[QueueRow, ...]
    lines: tuple[Line, ...]


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier runs of the program say: what to ask for, and what it will take; null without earlier runs."""

    counsel: SizingReport
    estimate: Estimate | None


class Budgets(msgspec.Struct, frozen=True):
    """How namespaces stand against their budgets."""

    items: tuple[Budget, ...]


class CompareQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, each as `namespace/name` or `namespace/name@run`: at least two, or one with some of its attempts."""

    job: Annotated[tuple[str, ...], msgspec.Meta(max_length=10)] = ()
    attempt: Annotated[tuple[Number, ...], msgspec.Meta(max_length=10)] = ()


class PatternQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The jobs of how many days, and how many of a kind make a pattern."""

    days: Annotated[float, msgspec.Meta(gt=0, le=400)] = 7.0
    least: Annotated[int, msgspec.Meta(ge=1)] = 2


class ToConvert(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A text of another kind (MPIJob, TrainJob, Slurm or PBS script …), and what it is to become."""

    text: str
    to: Literal["job", "trainjob", "mpijob", "sbatch", "pbs"] = "job"
    image: str = ""


class Conversions(msgspec.Struct, frozen=True):
    """What the text held, converted, with a report on every field."""

    items: tuple[Conversion, ...]


class ExportQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """In which form: our own job file, or what `oc create -f` takes.

    What looks like a secret is masked, unless `values` asks for a text to begin another job with.
    """

    format: Literal["yaml", "json", "trainjob", "mpijob", "sbatch", "pbs"] = "yaml"
    values: bool = False


class Opinion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a piece of help was helpful; `topic` is a field, a code or a screen."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[\w./:-]+$")]
    helpful: bool


class Votes(msgspec.Struct, frozen=True):
    """How often a piece of help was said to be helpful, and how often not."""

    topic: str
    yes: int
    no: int


class Opinions(msgspec.Struct, frozen=True):
    """All of them."""

    items: tuple[Votes, ...]


class AttemptsAnswer(msgspec.Struct, frozen=True):
    """The jobs that had this name, newest first: retries are new jobs of the same name."""

    items: tuple[JobRow, ...]
