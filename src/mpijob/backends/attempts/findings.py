"""Why a job failed or waits, as it may be kept and shown: the one way from evidence to findings about a job.

What explains a job knows its command and its log, and so may quote a secret of it; nothing leaves here that does.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijob import diagnosis
from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.rule import Rule
from mpijob.errors import Finding
from mpijob.observation.redaction import masking


def explained(
    seen: Evidence, site: tuple[Rule, ...] = (), secrets: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """Return the findings, first cause first; `secrets` are the values of the job's secrets where they are known."""
    return masking.masked_findings(diagnosis.explain(seen, site), masking.secret_values(seen.spec, secrets))
