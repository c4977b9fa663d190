"""Known problems in MPIJobs of the MPI Operator, each with the change that fixes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mpijob.errors import Finding
from mpijob.formats.kubernetes import pod_template
from mpijob.formats.runtimes import lint_findings

_REPLICAS = "spec.mpiReplicaSpecs"


def lint(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the problems in an MPIJob, the most severe first."""
    spec = document.get("spec") or {}
    rules = (_gang, _order, _retries, _cleanup, _hostfile)
    return lint_findings.in_order(one for rule in rules for one in rule(spec))


def _replica(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    return (spec.get("mpiReplicaSpecs") or {}).get(role) or {}


def _main(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    return pod_template.container_of((_replica(spec, role).get("template") or {}).get("spec") or {})


def _waits(spec: Mapping[str, Any]) -> bool:
    return spec.get("launcherCreationPolicy") == "WaitForWorkersReady"


def _gang(spec: Mapping[str, Any]) -> Iterator[Finding]:
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy")
    workers = int(_replica(spec, "Worker").get("replicas") or 1)
    if policy is not None and _waits(spec) and int(policy.get("minAvailable") or workers + 1) > workers:
        field = "spec.runPolicy.schedulingPolicy.minAvailable"
        yield lint_findings.deadlock(f"set {field} to {workers}", field)


def _order(spec: Mapping[str, Any]) -> Iterator[Finding]:
    if not _waits(spec):
        hint = "set launcherCreationPolicy: WaitForWorkersReady"
        yield lint_findings.early_launcher(hint, "spec.launcherCreationPolicy")
    elif not ({"readinessProbe", "startupProbe"} & set(_main(spec, "Worker"))):
        yield lint_findings.unproved_workers(f"{_REPLICAS}.Worker")


def _retries(spec: Mapping[str, Any]) -> Iterator[Finding]:
    restart = _replica(spec, "Launcher").get("restartPolicy") or "OnFailure"
    limit = (spec.get("runPolicy") or {}).get("backoffLimit", 6)
    if restart != "Never" or limit != 0:
        hint = "set restartPolicy: Never for the launcher and runPolicy.backoffLimit: 0"
        yield lint_findings.silent_retries(restart, limit, hint, f"{_REPLICAS}.Launcher.restartPolicy")


def _cleanup(spec: Mapping[str, Any]) -> Iterator[Finding]:
    if ((spec.get("runPolicy") or {}).get("cleanPodPolicy") or "None") == "None":
        message = "cleanPodPolicy is None: workers keep running, and hold their resources, after the job ends"
        field = "spec.runPolicy.cleanPodPolicy"
        yield lint_findings.finding(
            "RUNTIME_CLEANUP", lint_findings.WARNING, message, f"set {field}: Running", field
        )


def _hostfile(spec: Mapping[str, Any]) -> Iterator[Finding]:
    if (spec.get("mpiImplementation") or "OpenMPI") == "OpenMPI":
        found = lint_findings.unlisted_hosts(_main(spec, "Launcher"), f"{_REPLICAS}.Launcher")
        yield from () if found is None else (found,)
