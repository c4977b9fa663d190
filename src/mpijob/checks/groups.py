"""Rules about groups of workers: their names and sums, and every rule about one worker applied to each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from mpijob.checks.rule import Findings, Limits, dns_label, error
from mpijob.model import MPIJob, WorkerGroup
from mpijob.model.spec.enums import shown
from mpijob.model.spec.job import Part

# Kueue's limit is 18 pod sets in a Workload: the launcher, workers without a group, and these.
MOST_GROUPS = 16
_LONGEST_NAME = 20
# Names of replicated jobs that Trainer or we use.
_TAKEN = ("launcher", "node", "worker", "dataset-initializer", "model-initializer")
_OWN = ("slots", "resources", "placement")


def each(check: Callable[[MPIJob, Limits], Findings]) -> Callable[[MPIJob, Limits], Findings]:
    """Decorate a rule about one worker: it is applied to the workers of each group, too."""

    def rule(job: MPIJob, limits: Limits) -> Findings:
        found = [*check(job, limits)]
        yield from found
        for index, part in enumerate(_of_groups(job)):
            for finding in check(part.job, limits):
                field = finding.field.partition(".")[0].partition("[")[0]
                if finding not in found and field in _OWN:
                    yield msgspec.structs.replace(finding, field=f"groups[{index}].{finding.field}", fixes=())

    return rule


def _of_groups(job: MPIJob) -> tuple[Part, ...]:
    return tuple(part for part in job.parts if part.group) if _are_named(job) else ()


def _are_named(job: MPIJob) -> bool:
    return all(group.name for group in job.groups)


def groups(job: MPIJob, limits: Limits) -> Findings:
    """Each group has a name of its own and workers, and together they do not exceed the job's."""
    if len(job.groups) > MOST_GROUPS:
        yield error("groups", f"{len(job.groups)} groups are set; at most {MOST_GROUPS} are allowed")
    for index, group in enumerate(job.groups):
        yield from _group(f"groups[{index}]", group)
    for name, count in Counter(group.name for group in job.groups).items():
        if count > 1 and name:
            yield error(
                "groups", f"{count} groups are named {shown(name)}", "use a unique name for each group"
            )
    yield from _sum(job)
    yield from _kinds(job)
    if job.groups and job.elastic is not None:
        message = "elastic cannot be used with groups: workers that come and go are all alike"
        yield error("groups", message, "remove groups or elastic")


def _group(field: str, group: WorkerGroup) -> Findings:
    if group.name in _TAKEN:
        message = f"{shown(group.name)} cannot be the name of a group: a cluster uses it for other pods"
        yield error(f"{field}.name", message, f"use {group.name}s" if group.name == "worker" else "")
    elif not dns_label(group.name) or not group.name[:1].isalpha() or len(group.name) > _LONGEST_NAME:
        hint = f"use at most {_LONGEST_NAME} lowercase letters, digits and hyphens, and start with a letter"
        yield error(f"{field}.name", f"{shown(group.name)} cannot be the name of a group", hint)
    if group.workers < 1:
        message = f"group {shown(group.name)} has {shown(group.workers)} workers; at least 1 is required"
        yield error(f"{field}.workers", message, "remove the group, or set workers: 1")


def _sum(job: MPIJob) -> Findings:
    together = sum(max(0, group.workers) for group in job.groups)
    if together > max(0, job.workers):
        counted = " + ".join(f"{shown(group.workers)} {group.name}" for group in job.groups)
        message = (
            f"the groups have {shown(together)} workers ({counted}), but the job has {shown(job.workers)}"
        )
        hint = f"workers counts all workers of the job: use workers: {shown(together)} or more"
        yield error("workers", message, hint, {"workers": together})


def _kinds(job: MPIJob) -> Findings:
    having = [part.job.resources for part in job.parts if part.job.resources.gpu > 0]
    kinds = [*dict.fromkeys(resources.gpu_kind for resources in having)]
    if len(kinds) > 1:
        message = f"the workers request GPUs of {len(kinds)} kinds: {', '.join(map(shown, kinds))}"
        hint = "use one gpu_kind in all groups, and select nodes with placement.node_selector"
        yield error("groups", message, hint)
