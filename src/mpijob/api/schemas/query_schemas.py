"""What may be asked about accounts and curves, and where curves are seen; the other questions are in `job_schemas`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mpijob.api.schemas.job_schemas import Limit, Which
from mpijob.model import Phase


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of jobs; repeated values are alternatives. Without a namespace, all that the user may see."""

    namespace: str = ""
    owner: tuple[str, ...] = ()
    status: tuple[Phase, ...] = ()
    label: str = ""
    since: float | None = None
    until: float | None = None


class AccountsQuery(Chosen, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of accounting records, newest first."""

    after: str = ""
    limit: Limit = 100


class ReportQuery(Chosen, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters and grouping of a report; `by` is a comma-separated list (`user,month`, `label:team`)."""

    by: str = "user"


class CurvesQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rank whose metrics to return, and the maximum number of points."""

    rank: Annotated[int, msgspec.Meta(ge=0)] | None = None
    points: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 720


class ScalarsQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Maximum number of points of each scalar."""

    points: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 360


class ProfileQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Step of a script; default: the last."""

    step: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Links(msgspec.Struct, frozen=True):
    """Links to a job's training metrics: URLs of `mlflow`, `wandb` and `tensorboard`."""

    items: dict[str, str]
