"""Findings about a job that may be stored and shown: the only way from evidence to them.

The explanation quotes the job's command and log, which may contain a secret; here it is masked.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijob import diagnosis
from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.rule import Rule
from mpijob.errors import Finding
from mpijob.observation.redaction import masking


def explained(
    evidence: Evidence, site_rules: tuple[Rule, ...] = (), secrets: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """Return the findings, the first cause first; `secrets` are the values of the job's secrets, if known."""
    found = diagnosis.explain(evidence, site_rules)
    return masking.masked_findings(found, masking.secret_values(evidence.spec, secrets))
