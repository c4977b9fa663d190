"""The nouns that every room shares: frozen values, no I/O, no clock, no engine's words.

Each is loaded when it is first used: a list of jobs needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpijob.model.amounts import Amounts
    from mpijob.model.facts import Facts, Quota
    from mpijob.model.identity import Identity
    from mpijob.model.job import (
        Code,
        CustomLaunch,
        Elastic,
        Family,
        Launch,
        Model,
        MPIJob,
        Network,
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
    )
    from mpijob.model.plan import Plan, PlannedWorker
    from mpijob.model.records import Artifact, Event, Level, LogLine, LogQuery, Mark, Role, Sample
    from mpijob.model.ref import JobKey, JobRef, Scope
    from mpijob.model.stacks import RankStack, StackReport
    from mpijob.model.state import Exit, JobState, Page, Phase, RankState, WorkerState

__all__ = [
    "Amounts",
    "Artifact",
    "Code",
    "CustomLaunch",
    "Elastic",
    "Event",
    "Exit",
    "Facts",
    "Family",
    "Identity",
    "JobKey",
    "JobRef",
    "JobState",
    "Launch",
    "Level",
    "LogLine",
    "LogQuery",
    "MPIJob",
    "Mark",
    "Model",
    "Network",
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
    "Topology",
    "Volume",
    "VolumeKind",
    "WorkerState",
]

_HOMES = {
    "Amounts": "amounts",
    "Artifact": "records",
    "Code": "job",
    "CustomLaunch": "job",
    "Elastic": "job",
    "Event": "records",
    "Exit": "state",
    "Facts": "facts",
    "Family": "job",
    "Identity": "identity",
    "JobKey": "ref",
    "JobRef": "ref",
    "JobState": "state",
    "Launch": "job",
    "Level": "records",
    "LogLine": "records",
    "LogQuery": "records",
    "MPIJob": "job",
    "Model": "job",
    "Mark": "records",
    "Network": "job",
    "Page": "state",
    "Phase": "state",
    "Placement": "job",
    "Plan": "plan",
    "PlannedWorker": "plan",
    "Program": "job",
    "Quota": "facts",
    "RankStack": "stacks",
    "RankState": "state",
    "Resources": "job",
    "Retention": "job",
    "Retry": "job",
    "Role": "records",
    "Sample": "records",
    "Scope": "ref",
    "Secret": "job",
    "Signal": "job",
    "StackReport": "stacks",
    "Topology": "job",
    "Volume": "job",
    "VolumeKind": "job",
    "WorkerState": "state",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mpijob.model' has no attribute {name!r}")
    value = getattr(import_module(f"mpijob.model.{_HOMES[name]}"), name)
    globals()[name] = value  # the next time it is found at once
    return value
