"""Rules about how a job is treated: placement, priority, times, retries, notifications."""

from __future__ import annotations

import math
import re

from mpijob.checks.rule import Findings, Limits, dns_name, error, warning
from mpijob.errors import Finding
from mpijob.model import MPIJob
from mpijob.model.spec.enums import (
    FABRICS,
    NOTICES,
    PRESETS,
    PRIORITIES,
    RETRY_CAUSES,
    SIGNALS,
    choice_hint,
    did_you_mean,
    shown,
)
from mpijob.model.spec.network import destination

# Names of objects have two digits for the attempt.
_MOST_RETRIES = 98
_LOWEST_PRIORITY, _HIGHEST_PRIORITY = -1_000_000_000, 1_000_000_000
_LONGEST_SECONDS = 366 * 86_400.0
_LONGEST_DAYS = 36_600.0
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,63}")
_MOST_AT_ONCE, _MOST_NOTIFIED = 10_000, 20
_GROUP = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def placement(job: MPIJob, limits: Limits) -> Findings:
    """Excluded nodes have names, selectors are labels, tolerations have a known effect."""
    for index, node in enumerate(job.placement.exclude_nodes):
        if not dns_name(node):
            yield error(f"placement.exclude_nodes[{index}]", f"{shown(node)} cannot be the name of a machine")
    for key, value in job.placement.node_selector.items():
        if not key or not all(32 < ord(letter) < 127 for letter in key + value):
            yield error(
                "placement.node_selector",
                f"{shown(key)}: {shown(value)} cannot be a label",
                "for example: zone: a",
            )
    for index, toleration in enumerate(job.placement.tolerations):
        effect = toleration.get("effect")
        if effect is not None and effect not in _EFFECTS:
            field = f"placement.tolerations[{index}].effect"
            yield error(field, f"{shown(effect)} is not a valid value", f"allowed: {', '.join(_EFFECTS)}")


def presets(job: MPIJob, limits: Limits) -> Findings:
    """Each preset exists, and they choose one network only."""
    for index, name in enumerate(job.presets):
        if name not in PRESETS:
            yield error(f"presets[{index}]", f"{shown(name)} is not a preset", choice_hint(name, PRESETS))
    networks = [name for name in dict.fromkeys(job.presets) if name in (*FABRICS, "tcp")]
    if len(networks) > 1:
        yield error(
            "presets",
            f"{' and '.join(networks)} are different networks; a job can have only one",
            "set one of them",
        )


def network(job: MPIJob, limits: Limits) -> Findings:
    """Every destination can be opened by a NetworkPolicy."""
    for index, word in enumerate(job.network.egress):
        try:
            destination(word, job.namespace)
        except ValueError as reason:
            hint = "for example: internet:443, 10.1.0.0/16, minio.data.svc, namespace/data"
            yield error(f"network.egress[{index}]", f"{shown(word)} is not a destination: {reason}", hint)
    for index, word in enumerate(job.network.attachments):
        if not all(dns_name(part) for part in word.partition("@")[0].split("/", 1)):
            message = f"{shown(word)} cannot be the name of a network"
            yield error(
                f"network.attachments[{index}]", message, "for example: ib-a, fabric/ib-a, fabric/ib-a@net1"
            )


def priority(job: MPIJob, limits: Limits) -> Findings:
    """The priority is a number, a known word, or the name of a priority class."""
    if isinstance(job.priority, int):
        if not _LOWEST_PRIORITY <= job.priority <= _HIGHEST_PRIORITY:
            yield _out_of_range("priority", job.priority, _LOWEST_PRIORITY, _HIGHEST_PRIORITY)
    elif not dns_name(job.priority):
        message = f"{shown(job.priority)} is not a number, a keyword or the name of a priority class"
        yield error("priority", message, f"for example: 10, or one of {', '.join(PRIORITIES)}")
    elif job.priority not in PRIORITIES and (meant := did_you_mean(job.priority, PRIORITIES)):
        message = f"{shown(job.priority)} is used as the name of a priority class"
        yield warning("priority", message, f"did you mean '{meant}'?", {"priority": meant})


def retry(job: MPIJob, limits: Limits) -> Findings:
    """A limited number of retries, with a pause that does not shrink."""
    if not 0 <= job.retry.limit <= _MOST_RETRIES:
        message = f"{shown(job.retry.limit)} retries requested; 0 to {_MOST_RETRIES} are allowed"
        yield error("retry.limit", message, "with 0 a failed job is not retried")
    for index, cause in enumerate(job.retry.on):
        if cause not in RETRY_CAUSES and not _CODE.fullmatch(cause):
            meant = did_you_mean(cause, RETRY_CAUSES)
            guess = f"did you mean '{meant}'? " if meant else ""
            hint = f"{guess}allowed: {', '.join(RETRY_CAUSES)}, and codes such as NCCL_TIMEOUT"
            yield error(f"retry.on[{index}]", f"{shown(cause)} is not a cause of failures", hint)
    if job.retry.on and not job.retry.limit:
        yield error("retry.on", "retry.on is set, but the job is never retried", "set retry.limit")
    yield from _between("retry.backoff_seconds", job.retry.backoff_seconds, 0, _LONGEST_SECONDS)
    yield from _between("retry.max_backoff_seconds", job.retry.max_backoff_seconds, 0, _LONGEST_SECONDS)
    yield from _between("retry.factor", job.retry.factor, 1, 100)


def concurrency(job: MPIJob, limits: Limits) -> Findings:
    """At least one job of a group runs, and the group's name is a valid label."""
    if job.concurrency is None:
        return
    if not 1 <= job.concurrency.limit <= _MOST_AT_ONCE:
        message = (
            f"{shown(job.concurrency.limit)} concurrent jobs requested; 1 to {_MOST_AT_ONCE} are allowed"
        )
        yield error("concurrency.limit", message, "remove concurrency if only the queue should decide")
    if job.concurrency.group and not _GROUP.fullmatch(job.concurrency.group):
        message = f"{shown(job.concurrency.group)} cannot be the name of a group"
        yield error("concurrency.group", message, "use at most 63 letters, digits, '-', '_' and '.'")


def notices(job: MPIJob, limits: Limits) -> Findings:
    """Each notification has a mail address or the name of a callback, and known events."""
    for index, one in enumerate(job.notify):
        field = f"notify[{index}]"
        if not (one.is_address or _GROUP.fullmatch(one.to)):
            message = f"{shown(one.to)} is neither a mail address nor the name of a callback"
            yield error(f"{field}.to", message, "write ann@example.org, or a name of the notifier's settings")
        if not one.on:
            yield error(f"{field}.on", "no notification would be sent", f"allowed: {', '.join(NOTICES)}")
        for at, moment in enumerate(one.on):
            if moment not in NOTICES:
                hint = choice_hint(moment, NOTICES)
                yield error(f"{field}.on[{at}]", f"{shown(moment)} is not an event of a job", hint)
    if len(job.notify) > _MOST_NOTIFIED:
        yield error(
            "notify", f"{len(job.notify)} receivers; at most {_MOST_NOTIFIED} are allowed", "use a list"
        )


def times(job: MPIJob, limits: Limits) -> Findings:
    """Times are finite and not negative; a deadline and a gang timeout are positive."""
    yield from _above_zero("gang_timeout_seconds", job.gang_timeout_seconds)
    if job.deadline_seconds is not None:
        yield from _above_zero("deadline_seconds", job.deadline_seconds)
    yield from _between("grace_seconds", job.grace_seconds, 0, _LONGEST_SECONDS)
    yield from _between("keep_on_failure_seconds", job.keep_on_failure_seconds, 0, _LONGEST_SECONDS)
    yield from _between("retention.logs_days", job.retention.logs_days, 0, _LONGEST_DAYS)
    yield from _between("retention.record_days", job.retention.record_days, 0, _LONGEST_DAYS)
    if job.ttl_seconds is not None:
        yield from _between("ttl_seconds", job.ttl_seconds, 0, _LONGEST_SECONDS)


def _above_zero(field: str, number: float) -> Findings:
    if not (math.isfinite(number) and 0 < number <= _LONGEST_SECONDS):
        message = (
            f"{shown(number)} is out of range: more than 0 and at most {shown(_LONGEST_SECONDS)} is allowed"
        )
        yield error(field, message, "it is a number of seconds")


def _between(field: str, number: float, low: float, high: float) -> Findings:
    if not (math.isfinite(number) and low <= number <= high):
        yield _out_of_range(field, number, low, high)


def _out_of_range(field: str, number: float, low: float, high: float) -> Finding:
    return error(field, f"{shown(number)} is out of range: {shown(low)} to {shown(high)} is allowed")


def signal(job: MPIJob, limits: Limits) -> Findings:
    """The signal exists, and is sent between the start and the deadline."""
    name = job.signal.name.removeprefix("SIG")
    if name not in SIGNALS:
        meant = did_you_mean(name, SIGNALS)
        guess = f"did you mean '{meant}'? " if meant else ""
        hint = f"{guess}allowed: {', '.join(SIGNALS)}"
        yield error(
            "signal.name", f"{shown(job.signal.name)} is not a signal that can be sent to ranks", hint
        )
    seconds, deadline = job.signal.seconds_before, job.deadline_seconds
    yield from _between("signal.seconds_before", seconds, 0, _LONGEST_SECONDS)
    if deadline is not None and seconds > 0 and deadline > 0 and seconds >= deadline:
        message = f"the signal comes {shown(seconds)} s before a deadline of {shown(deadline)} s"
        yield error("signal.seconds_before", message, "make the deadline longer or the warning shorter")
