"""The nouns that every room shares: frozen values, no I/O, no clock, no engine's words."""

from mpijob.model.facts import Amounts, Facts, Quota
from mpijob.model.identity import Identity
from mpijob.model.job import (
    Code,
    CustomLaunch,
    Family,
    Launch,
    MPIJob,
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
from mpijob.model.records import Artifact, Event, LogLine, LogQuery, Role, Sample
from mpijob.model.ref import JobRef, Scope
from mpijob.model.state import Exit, JobState, Page, Phase, RankState, WorkerState

__all__ = [
    "Amounts",
    "Artifact",
    "Code",
    "CustomLaunch",
    "Event",
    "Exit",
    "Facts",
    "Family",
    "Identity",
    "JobRef",
    "JobState",
    "Launch",
    "LogLine",
    "LogQuery",
    "MPIJob",
    "Page",
    "Phase",
    "Placement",
    "Plan",
    "PlannedWorker",
    "Program",
    "Quota",
    "RankState",
    "Resources",
    "Retention",
    "Retry",
    "Role",
    "Sample",
    "Scope",
    "Secret",
    "Signal",
    "Topology",
    "Volume",
    "VolumeKind",
    "WorkerState",
]
