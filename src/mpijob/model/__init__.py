"""The values that all packages share: frozen, without I/O, clock and terms of one engine.

Each is imported at its first use: a list of jobs needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpijob.model.identity import Identity
    from mpijob.model.plan import Plan, PlannedWorker
    from mpijob.model.platform.facts import Facts, Quota
    from mpijob.model.ref import JobKey, JobRef, Scope
    from mpijob.model.spec.amounts import Amounts
    from mpijob.model.spec.job import (
        Code,
        Concurrency,
        CustomLaunch,
        Elastic,
        Family,
        GitSource,
        Launch,
        Model,
        MPIJob,
        Network,
        Notify,
        Placement,
        Program,
        Resources,
        Retention,
        Retry,
        Secret,
        Signal,
        Topology,
        Volume,
        VolumeKind,
        WorkerGroup,
    )
    from mpijob.model.status.level import Level
    from mpijob.model.status.records import Artifact, Event, LogLine, LogQuery, Mark, Role, Sample
    from mpijob.model.status.stacks import RankStack, StackReport
    from mpijob.model.status.state import (
        Exit,
        JobState,
        LauncherPhase,
        LauncherState,
        Page,
        Phase,
        RankState,
        StepState,
        WorkerState,
    )

__all__ = [
    "Amounts",
    "Artifact",
    "Code",
    "Concurrency",
    "CustomLaunch",
    "Elastic",
    "Event",
    "Exit",
    "Facts",
    "Family",
    "GitSource",
    "Identity",
    "JobKey",
    "JobRef",
    "JobState",
    "Launch",
    "LauncherPhase",
    "LauncherState",
    "Level",
    "LogLine",
    "LogQuery",
    "MPIJob",
    "Mark",
    "Model",
    "Network",
    "Notify",
    "Page",
    "Phase",
    "Placement",
    "Plan",
    "PlannedWorker",
    "Program",
    "Quota",
    "RankStack",
    "RankState",
    "Resources",
    "Retention",
    "Retry",
    "Role",
    "Sample",
    "Scope",
    "Secret",
    "Signal",
    "StackReport",
    "StepState",
    "Topology",
    "Volume",
    "VolumeKind",
    "WorkerGroup",
    "WorkerState",
]

_MODULES = {
    "Amounts": "spec.amounts",
    "Artifact": "status.records",
    "Code": "spec.job",
    "Concurrency": "spec.job",
    "CustomLaunch": "spec.job",
    "Elastic": "spec.job",
    "Event": "status.records",
    "Exit": "status.state",
    "Facts": "platform.facts",
    "Family": "spec.job",
    "GitSource": "spec.job",
    "Identity": "identity",
    "JobKey": "ref",
    "JobRef": "ref",
    "JobState": "status.state",
    "Launch": "spec.job",
    "LauncherPhase": "status.state",
    "LauncherState": "status.state",
    "Level": "status.level",
    "LogLine": "status.records",
    "LogQuery": "status.records",
    "MPIJob": "spec.job",
    "Model": "spec.job",
    "Mark": "status.records",
    "Network": "spec.job",
    "Notify": "spec.job",
    "Page": "status.state",
    "Phase": "status.state",
    "Placement": "spec.job",
    "Plan": "plan",
    "PlannedWorker": "plan",
    "Program": "spec.job",
    "Quota": "platform.facts",
    "RankStack": "status.stacks",
    "RankState": "status.state",
    "StepState": "status.state",
    "Resources": "spec.job",
    "Retention": "spec.job",
    "Retry": "spec.job",
    "Role": "status.records",
    "Sample": "status.records",
    "Scope": "ref",
    "Secret": "spec.job",
    "Signal": "spec.job",
    "StackReport": "status.stacks",
    "Topology": "spec.job",
    "Volume": "spec.job",
    "VolumeKind": "spec.job",
    "WorkerGroup": "spec.job",
    "WorkerState": "status.state",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mpijob.model' has no attribute {name!r}")
    value = getattr(import_module(f"mpijob.model.{_MODULES[name]}"), name)
    # `__getattr__` is called for missing names only, so the next access is direct.
    globals()[name] = value
    return value
