"""Rewrites the scheduler's message about an unschedulable pod.

The message counts reasons (`0/3 nodes are available: 1 node(s) had untolerated taint {gpu: only}, 2 Insufficient
nvidia.com/gpu. preemption: …`); ours names the missing resource and the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mpijob.formats.status.nested_fields import amount, in_words, thing
from mpijob.model.platform.cluster_observation import Obstacle, StartupProblem

_LONGEST = 400
_COUNTED = re.compile(r"0/(?P<total>\d{1,7}) nodes? (?:are|is) available: (?P<reasons>.*)", re.DOTALL)
_AFTERWORD = re.compile(r"\.\s+(?:preemption:|no new claims to deallocate|Preemption).*", re.DOTALL)
_ONE = re.compile(r"(?P<count>\d{1,7}) (?P<reason>\S.*)")
_SHORT = re.compile(r"Insufficient (?P<resource>\S+)")
_TAINT = re.compile(r"had (?:an? )?untolerated taint(?:\(s\))?(?: \{(?P<taint>[^}:]*):? *[^}]*\})?")
_NO_CLAIM = re.compile(r"persistentvolumeclaim \"(?P<claim>[^\"]{1,253})\" not found")
_PHRASES = (
    ("node affinity/selector", "not match the job's node selector"),
    ("were unschedulable", "take no new pods (cordoned)"),
    ("anti-affinity", "have a pod that conflicts by anti-affinity"),
    ("topology spread", "would spread the workers unevenly"),
    ("volume node affinity", "not reach the job's volume"),
    ("available persistent volumes", "have no volume for the job's claim"),
    ("Too many pods", "have reached their pod limit"),
    ("not ready", "are not ready"),
    ("free ports", "already use the port"),
)


def obstacle(message: str, requests: Mapping[str, str], since: float | None) -> Obstacle:
    """Return why a pod with these requests has no node."""
    if missing := _NO_CLAIM.search(message):
        return _volume(f"The volume claim {missing['claim']} does not exist", since, lasting=True)
    if "unbound immediate PersistentVolumeClaims" in message:
        return _volume("A volume claim of the job is not bound to a volume yet", since, lasting=False)
    return Obstacle(hurdle=StartupProblem.NO_PLACE, text=readable(message, requests), since=since)


def _volume(text: str, since: float | None, *, lasting: bool) -> Obstacle:
    return Obstacle(hurdle=StartupProblem.VOLUME, text=text, since=since, lasting=lasting)


def readable(message: str, requests: Mapping[str, str]) -> str:
    """Return the scheduler's message in plain words, missing resources first."""
    counted = _COUNTED.search(message)
    if counted is None:
        return _shortened(message) or "No node fits"
    total, reasons = int(counted["total"]), _AFTERWORD.sub("", counted["reasons"]).rstrip(". ")
    if total == 0:
        return "The cluster has no nodes"
    found = [
        match
        for reason_match in re.split(r", (?=\d)", reasons)
        if (match := _ONE.fullmatch(reason_match.strip()))
    ]
    short = {
        match["resource"]: int(reason_match["count"])
        for reason_match in found
        if (match := _SHORT.match(reason_match["reason"]))
    }
    others = list(_others(found, total))
    if short:
        return "; ".join([_insufficient(short, requests, total), *others])
    return f"No node fits: {'; '.join(others) or _shortened(reasons)}"


def _insufficient(short: Mapping[str, int], requests: Mapping[str, str], total: int) -> str:
    parts = [_lack(resource, requests) for resource in short]
    most = max(short.values())
    rest = (
        f"no node of {total} has as much free"
        if most == total
        else f"{most} of {total} nodes have too little free"
    )
    return f"{in_words(parts)}, {rest}"


def _lack(resource: str, requests: Mapping[str, str]) -> str:
    wanted = requests.get(resource)
    return f"Insufficient {thing(resource)}" + (f": requested {amount(resource, wanted)}" if wanted else "")


def _others(found: list[re.Match[str]], total: int) -> Iterator[str]:
    for reason_match in found:
        if not _SHORT.match(reason_match["reason"]):
            yield _phrase(int(reason_match["count"]), total, reason_match["reason"])


def _phrase(count: int, total: int, reason: str) -> str:
    which = f"{count} of {total} node{'' if total == 1 else 's'}"
    if taint := _TAINT.search(reason):
        name = f" ({taint['taint']})" if taint["taint"] else ""
        return f"{which}: a taint that the job does not tolerate{name}"
    words = next((phrase for sign, phrase in _PHRASES if sign in reason), "")
    if words.startswith("not "):
        words = f"{'does' if count == 1 else 'do'} {words}"
    return f"{which} {words}" if words else f"{which}: {_shortened(reason.removeprefix('node(s) '))}"


def _shortened(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
