"""Known problems in runtimes and MPIJobs: `lint_runtime` for Trainer, `lint_mpijob` for the MPI Operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mpijob.formats.runtimes import builtin, lint_mpijob, lint_runtime

if TYPE_CHECKING:
    from mpijob.errors import Finding


def lint(document: Mapping[str, Any], *, openshift: bool = False) -> tuple[Finding, ...] | None:
    """Return the problems, the most severe first; None for any other kind of document."""
    if document.get("kind") == "MPIJob":
        return lint_mpijob.lint(document)
    if document.get("kind") in ("TrainingRuntime", "ClusterTrainingRuntime") and builtin.is_mpi(document):
        return lint_runtime.lint(document, openshift=openshift)
    return None
