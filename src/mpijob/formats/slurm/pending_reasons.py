"""Why a Slurm job waits: squeue's reasons, their meaning, and whether waiting helps."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Outlook(StrEnum):
    """What must happen before the job starts."""

    # Nothing: it starts by itself.
    TURN = "turn"
    # An administrator must do something.
    ADMIN = "admin"
    # Its owner must do something.
    USER = "user"
    # It cannot start as it is.
    NEVER = "never"


class Pending(NamedTuple):
    """The meaning of a reason: a message, its outlook, and what can be done."""

    outlook: Outlook
    message: str
    hint: str = ""


_WAIT = "no action needed: it starts automatically"
_LIMITS = "mpijob doctor --context slurm shows the limits of your account and QOS"
# Reasons are words (`QOSGrpCpuLimit`) or sentences, and are matched by their beginning. Most of the 199 words of
# Slurm 22.05 are composed (whose limit, over what, of which resource), and are parsed as such.
_TURN: dict[str, str] = {
    "None": "Slurm has not evaluated it yet",
    "Priority": "jobs of higher priority are ahead of it",
    "Resources": "it waits for nodes, cores, memory or GPUs to become free",
    "Dependency": "it waits for another job",
    "BeginTime": "its begin time is not reached; a requeued job waits two minutes",
    "Licenses": "it waits for licences",
    "Reservation": "its reservation has not started",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "its last run is being cleaned up",
    "SchedDefer": "Slurm has deferred its evaluation",
    "JobArrayTaskLimit": "its array runs as many tasks at once as it allows (%)",
    "FedJobLock": "another cluster of the federation considers it",
    "BurstBuffer": "its burst buffer is being filled",
    "Power": "nodes have to be powered up",
    "BlockFreeAction": "nodes are being freed",
}
_ADMIN: dict[str, str] = {
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Nodes required for job are": "nodes it needs are down, drained or reserved for a partition of higher priority",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs now",
    "NodeDown": "a node that it needs is down",
    "FrontEndDown": "no front end is up",
    "JobHeldAdmin": "an administrator holds it",
    "BlockMaxError": "too many nodes have failed",
    "SystemFailure": "Slurm failed to start it",
    "ReservationDeleted": "its reservation was deleted",
    "AccountingPolicy": "a limit of its account or QOS is reached",
    "InactiveLimit": "it reached the limit of inactivity",
}
_NEVER: dict[str, str] = {
    "PartitionTimeLimit": "it requests more time than its partition allows",
    "PartitionNodeLimit": "it requests more or fewer nodes than its partition allows, or than the partition has",
    "PartitionConfig": "its partition does not allow such a job",
    "BadConstraints": "no nodes have what it requests",
    "DependencyNeverSatisfied": "a job that it waits for did not succeed",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "AccountNotAllowed": "its account may not use this partition",
    "QOSNotAllowed": "its QOS may not be used in this partition",
    "Job's account not permitted": "its account may not use this partition",
    "Job's QOS not permitted": "its QOS may not be used in this partition",
    "MaxMemPerLimit": "it requests more memory than its partition allows for a node or core",
    "DeadLine": "it cannot end before its deadline",
    "QOSUsageThreshold": "the usage limit of its QOS is reached",
    "TimeLimit": "its time is over",
    "OutOfMemory": "it ran out of memory",
    "NonZeroExitCode": "it failed",
    "JobLaunchFailure": "it could not be started",
}
_USER: dict[str, str] = {
    "launch failed requeued held": "its nodes could not be prepared (prolog); Slurm holds it",
    "JobHoldMaxRequeue": "it was requeued too often; Slurm holds it",
    "JobHeldUser": "it is held by its owner",
    "job requeued in held state": "it was requeued and is held",
    "Job is in held state": "it is held",
}
_HINTS = {
    Outlook.TURN: _WAIT,
    Outlook.ADMIN: "ask an administrator; `sinfo -R` and `sinfo -s` show why nodes are not available",
    Outlook.USER: "mpijob resume NAME, or scontrol release NUMBER",
    Outlook.NEVER: "cancel it, and submit it within these limits",
}
_PARTS = re.compile(
    r"(?P<who>QOS|Assoc(?:iation)?|)(?P<how>Grp|Max|Min|Job|Resource|Time)"
    r"(?P<what>\w*?)(?P<time>RunMinutes|Minutes|)(?P<scope>PerJob|PerNode|PerUser|PerAccount|)"
    r"(?:Limit|NotSatisfied|)"
)
_WHAT = {"cpu": "CPUs", "mem": "memory", "memory": "memory", "node": "nodes", "gres": "GPUs or other GRES",
         "jobs": "jobs", "job": "jobs", "submitjobs": "submitted jobs", "submitjob": "submitted jobs", "wall": "time",
         "wallduration": "time", "license": "licences", "billing": "billed units", "energy": "energy",
         "bb": "burst buffer", "unknown": "a resource", "": "resources"}  # fmt: skip


def explain(reason: str) -> Pending:
    """Return what a reason means.

    >>> explain("QOSMaxCpuPerJobLimit").message
    'it requests more CPUs than its QOS allows for one job'
    >>> explain("ReqNodeNotAvail, UnavailableNodes:n[1-4]").outlook.value
    'admin'
    """
    for outlook, known in (
        (Outlook.NEVER, _NEVER),
        (Outlook.ADMIN, _ADMIN),
        (Outlook.USER, _USER),
        (Outlook.TURN, _TURN),
    ):
        for word, message in known.items():
            if reason == word or (reason.startswith(word) and not reason[len(word) :][:1].isalnum()):
                return Pending(outlook, message + _rest(reason, word), _HINTS[outlook])
    if (parts := _PARTS.fullmatch(reason)) and (parts["who"] or parts["scope"]):
        return _limit(parts)
    for word in ("BurstBuffer", "Power"):
        if reason.startswith(word):
            return Pending(Outlook.TURN, _TURN[word], _WAIT)
    return Pending(Outlook.TURN, f"Slurm says: {reason}", _WAIT)


def _rest(reason: str, word: str) -> str:
    """Return the details after a reason's word: missing nodes, the refused account."""
    rest = reason[len(word) :].strip(" ,")
    return f" ({rest})" if rest and not word.startswith("Nodes required") else ""


def _limit(parts: re.Match[str]) -> Pending:
    """Return the meaning of a limit from the parts of its word."""
    account = parts["scope"] == "PerAccount" or parts["who"].startswith("Assoc")
    whose = "its account" if account else "its QOS"
    what = _WHAT.get(parts["what"].lower(), parts["what"])
    if parts["time"]:
        what = f"{what} times minutes"
    if parts["how"] == "Min":
        return _never(f"{whose} requires a minimum of {what} that the job does not request")
    if parts["how"] == "Max" and parts["scope"] in ("PerJob", "PerNode"):
        return _never(f"it requests more {what} than {whose} allows for one {parts['scope'][3:].lower()}")
    if parts["how"] == "Grp":
        spent = parts["time"] == "Minutes"
        text = f"the jobs of {whose} have together reached its limit of {what}"
        return Pending(Outlook.ADMIN if spent else Outlook.TURN, text, _LIMITS)
    one = "one user's jobs" if parts["scope"] == "PerUser" else "its jobs"
    return Pending(Outlook.TURN, f"{one} have reached the limit of {what} that {whose} sets", _LIMITS)


def _never(message: str) -> Pending:
    return Pending(Outlook.NEVER, message, _HINTS[Outlook.NEVER])
