"""What may be asked about accounts and curves, and where curves are seen; the other questions are in `job_schemas`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mpijob.api.schemas.job_schemas import Limit, Which
from mpijob.model import Phase


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs; words given several times mean any of them. Without a namespace: all that may be seen."""

    namespace: str = ""
    owner: tuple[str, ...] = ()
    status: tuple[Phase, ...] = ()
    label: str = ""
    since: float | None = None
    until: float | None = None


class AccountsQuery(Chosen, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which accounts, newest first."""

    after: str = ""
    limit: Limit = 100


class ReportQuery(Chosen, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Totals of which accounts, and by what: words with commas (`user,month`, `label:team`)."""

    by: str = "user"


class CurvesQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which rank's metrics, and how finely."""

    rank: Annotated[int, msgspec.Meta(ge=0)] | None = None
    points: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 720


class ScalarsQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How finely the scalars of event files are told."""

    points: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 360


class ProfileQuery(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of which step of a script; the last one unless it is said."""

    step: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Links(msgspec.Struct, frozen=True):
    """Where a job's training is seen elsewhere: `mlflow`, `wandb`, `tensorboard`, by their addresses."""

    items: dict[str, str]
