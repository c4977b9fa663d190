"""Traps in documents for a cluster: `lint_runtime` knows Trainer's runtimes, `lint_mpijob` the MPI Operator's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mpijob.formats.runtimes import builtin, lint_mpijob, lint_runtime

if TYPE_CHECKING:
    from mpijob.errors import Finding


def lint(document: Mapping[str, Any], *, openshift: bool = False) -> tuple[Finding, ...] | None:
    """Return the traps in a runtime or an MPIJob, the worst first; None for what is neither."""
    if document.get("kind") == "MPIJob":
        return lint_mpijob.lint(document)
    if document.get("kind") in ("TrainingRuntime", "ClusterTrainingRuntime") and builtin.is_mpi(document):
        return lint_runtime.lint(document, openshift=openshift)
    return None
