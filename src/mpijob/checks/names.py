"""Rules about names in DNS and labels: the job's own, its namespace and queue, its labels."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from mpijob.checks.rule import (
    LONGEST_LABEL,
    Findings,
    Limits,
    at,
    dns_label,
    dns_name,
    error,
    unfit,
    unfit_line,
)
from mpijob.model import MPIJob
from mpijob.model.spec import dependencies
from mpijob.model.spec.enums import did_you_mean, shown

_NAME_RULE = "use lowercase letters, digits and hyphens, and start and end with a letter or digit"
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_TEXT = 16_384


def name(job: MPIJob, limits: Limits) -> Findings:
    """The name is a DNS label, and so is the longest name that is derived from it."""
    longest = _longest_derived(job, limits)
    room = LONGEST_LABEL - (len(longest) - len(job.name))
    better = suggested(job.name, room)
    if not job.name:
        yield error("name", "the job has no name", f"for example: {better}", {"name": better})
    elif not dns_label(job.name[:LONGEST_LABEL].rstrip("-")) or job.name.endswith("-"):
        yield error(
            "name", f"{shown(job.name)} cannot be a name: {_NAME_RULE}", f"use {better}", {"name": better}
        )
    elif len(longest) > LONGEST_LABEL:
        reason = (
            f"a name of {len(job.name)} characters is too long: a worker would be named {longest[-24:]!r}"
        )
        message = f"{reason} with {len(longest)} characters; at most {LONGEST_LABEL} are allowed"
        yield error("name", message, f"use at most {room} characters, such as {better}", {"name": better})


def _longest_derived(job: MPIJob, limits: Limits) -> str:
    last = max(0, min(job.workers, limits.max_workers) - 1)
    return f"{job.name}-a99-worker-{last}"


def suggested(wanted: str, room: int = 40) -> str:
    """Return a valid name that is as similar as possible."""
    plain = unicodedata.normalize("NFKD", wanted[:200]).encode("ascii", "ignore").decode().lower()
    dashed = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return dashed[: max(1, room)].strip("-") or "my-job"


def namespace(job: MPIJob, limits: Limits) -> Findings:
    """The namespace is a DNS label."""
    if not dns_label(job.namespace):
        better = suggested(job.namespace, LONGEST_LABEL) if job.namespace else "default"
        message = f"{shown(job.namespace)} cannot be a namespace: {_NAME_RULE}"
        yield error("namespace", message, f"use {better}", {"namespace": better})


def queue(job: MPIJob, limits: Limits) -> Findings:
    """The queue is a DNS name, if it is set."""
    if job.queue and not dns_name(job.queue):
        yield error("queue", f"{shown(job.queue)} cannot be the name of a queue: {_NAME_RULE}")


def pull_secrets(job: MPIJob, limits: Limits) -> Findings:
    """Pull secrets are DNS names."""
    for index, secret in enumerate(job.pull_secrets):
        if not dns_name(secret):
            yield error(
                f"pull_secrets[{index}]", f"{shown(secret)} cannot be the name of a secret: {_NAME_RULE}"
            )


_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def pull_policy(job: MPIJob, limits: Limits) -> Findings:
    """The pull policy is one of Kubernetes' values."""
    if job.pull_policy and job.pull_policy not in _PULL_POLICIES:
        meant = did_you_mean(job.pull_policy, _PULL_POLICIES) or _PULL_POLICIES[1]
        words = ", ".join(_PULL_POLICIES[:-1]) + f" or {_PULL_POLICIES[-1]}"
        message = f"{shown(job.pull_policy)} is not a pull policy: use {words}"
        yield error("pull_policy", message, f"use {meant}", {"pull_policy": meant})


def after(job: MPIJob, limits: Limits) -> Findings:
    """A job waits for other jobs by name, and not for itself."""
    for index, entry in enumerate(job.after):
        try:
            other, _ = dependencies.checked(entry)
        except ValueError:
            word = entry.partition(":")[0]
            message = f"{shown(word)} is not a valid condition: use any or failed"
            yield error(f"after[{index}]", message, "NAME waits for success, any:NAME for any end")
            continue
        if not dns_label(other):
            yield error(f"after[{index}]", f"{shown(other)} cannot be the name of a job: {_NAME_RULE}")
        elif other == job.name:
            yield error(f"after[{index}]", f"job '{other}' would wait for itself", "name another job")
    for name in [name for name, count in Counter(dependencies.names(job.after)).items() if count > 1]:
        yield error("after", f"job '{name}' is listed twice", "name each job once")


def labels(job: MPIJob, limits: Limits) -> Findings:
    """Labels and cost labels are valid in Kubernetes."""
    for field, mapping in (("labels", job.labels), ("cost", job.cost)):
        for key, value in mapping.items():
            yield from _label(at(field, key), key, value)


def _label(field: str, key: str, value: str) -> Findings:
    prefix, slash, last = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(last) or (slash and not dns_name(prefix)):
        yield error(
            field, f"{shown(key)} cannot be a label: {_LABEL_RULE}", "for example: team or example.org/team"
        )
    if value and not _LABEL_NAME.fullmatch(value):
        yield error(field, f"{shown(value)} cannot be the value of a label: {_LABEL_RULE}", _LABEL_REMEDY)


_LABEL_RULE = "at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
_LABEL_REMEDY = "put longer text into description"


def texts(job: MPIJob, limits: Limits) -> Findings:
    """Owner and image are one line of text; the description has a limited length."""
    for field, text in (("owner", job.owner), ("image", job.image)):
        if reason := unfit_line(text):
            yield error(field, f"the text {reason}", "write it on one line, without control characters")
    if any(letter.isspace() for letter in job.image):
        yield error("image", f"{shown(job.image)} contains a space", "remove the space")
    if reason := unfit(job.description):
        yield error("description", f"the text {reason}", "remove it")
    if len(job.description) > _LONGEST_TEXT:
        message = f"{len(job.description)} characters; at most {_LONGEST_TEXT} are allowed"
        yield error("description", message, "put long texts into a file")
