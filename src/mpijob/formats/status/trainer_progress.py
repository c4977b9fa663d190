"""Training progress in `status.trainerStatus` or in the annotation of the OpenShift AI dashboard.

Trainer fills the status if its feature gate `TrainJobStatus` is on and the program reports to it.
`observation/metrics/training` reads progress from log lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.nested_fields import time_of
from mpijob.model.status.metric_line import Progress

ANNOTATION = "trainer.opendatahub.io/trainerStatus"


def read(job: Document) -> Progress | None:
    """Return the progress in a TrainJob, None if it has none."""
    found = (job.get("status") or {}).get("trainerStatus") or _annotated(job)
    if not isinstance(found, Mapping) or not found:
        return None
    percent, left = _number(found.get("progressPercentage")), _number(found.get("estimatedRemainingSeconds"))
    return Progress(
        progress=None if percent is None else min(1.0, max(0.0, percent / 100)),
        eta=left,
        metrics=_metrics(found.get("metrics")),
        updated=time_of(str(found.get("lastUpdatedTime") or "")),
    )


def _annotated(job: Document) -> Any:
    text = (job["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _metrics(rows: Any) -> dict[str, float]:
    if not isinstance(rows, list):
        return {}
    pairs = ((row.get("name"), _number(row.get("value"))) for row in rows if isinstance(row, Mapping))
    return {str(name)[:80]: value for name, value in pairs if name and value is not None}


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
