"""Why a pod that has a node does not run yet: image, configuration, volumes, init containers.

A container's status names most problems; only events say that an image is being pulled or a volume cannot be mounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.formats.status.events import EventReport
from mpijob.formats.status.nested_fields import conditions, moment, part, parts, text
from mpijob.model.platform.cluster_observation import Obstacle, StartupProblem

Pod = Mapping[str, Any]
_PULL_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull")
# The kubelet has not fetched a new Secret or ConfigMap yet, and tries again in a second.
_FIRST_TRY = "failed to sync"
_MOUNT_TROUBLE = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_PULL_NEWS = ("Pulling", "Pulled", "Failed", "Created", "Started")
_DENIED = re.compile(r"(?i)unauthorized|denied|forbidden|authorization failed|no basic auth|\b40[13]\b")
_ABSENT = re.compile(r"(?i)not found|manifest unknown|does not exist|\b404\b")
_OBJECT = re.compile(r"(?i)\b(?P<kind>secret|configmap) \"(?P<name>[^\"]{1,253})\" not found")
_KEY = re.compile(
    r"(?i)couldn't find key (?P<key>\S{1,253}) in (?P<kind>Secret|ConfigMap) (?:[^/\s]+/)?(?P<name>\S{1,253})"
)
_CLAIM = re.compile(r"persistentvolumeclaim \"(?P<name>[^\"]{1,253})\"")
_ROOT = re.compile(r"runAsNonRoot and image (?:will run as root|has non-numeric user)")
_RPC = re.compile(r"^rpc error: code = \w+ desc = ")
_LONGEST = 300


def obstacle(pod: Pod, reports: Iterable[EventReport]) -> Obstacle:
    """Return what a pod with a node waits for; call it only for a pod that does not run."""
    events, since = list(reports), _placed(pod)
    for status in _statuses(pod):
        waiting = part(status, "state", "waiting")
        if found := _named(pod, status, text(waiting, "reason"), text(waiting, "message"), events, since):
            return found
    return _from_events(events, since) or _plain(pod, since)


def image_of(pod: Pod, container: str) -> str:
    containers = (*parts(pod, "spec", "containers"), *parts(pod, "spec", "initContainers"))
    return next((text(one, "image") for one in containers if text(one, "name") == container), "")


def _statuses(pod: Pod) -> list[Mapping[str, Any]]:
    return [*parts(pod, "status", "initContainerStatuses"), *parts(pod, "status", "containerStatuses")]


def _placed(pod: Pod) -> float | None:
    return moment(conditions(pod).get("PodScheduled"), "lastTransitionTime")


def _named(
    pod: Pod,
    status: Mapping[str, Any],
    reason: str,
    message: str,
    events: list[EventReport],
    since: float | None,
) -> Obstacle | None:
    image = image_of(pod, text(status, "name"))
    if reason in _PULL_TROUBLE:
        return _image(image, message, reason, events, since)
    if reason == "InvalidImageName":
        return _lasting(StartupProblem.IMAGE_NAME, f"'{image}' is not the name of an image", since)
    if reason == "CreateContainerConfigError":
        return settings(message, since)
    if reason in ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError"):
        return _lasting(
            StartupProblem.START_FAILED, f"A container cannot be started: {shortened(message)}", since
        )
    return None


def _image(image: str, message: str, reason: str, events: list[EventReport], since: float | None) -> Obstacle:
    # Older kubelets report only the back-off in the status; the cause is in the last event about the image.
    event_message = next(
        (event.message for event in reversed(events) if event.reason == "Failed" and image in event.message),
        "",
    )
    whole = f"{message} {event_message}"
    if reason == "ErrImageNeverPull":
        return _lasting(
            StartupProblem.IMAGE_MISSING, f"Image {image} is not on the node, and may not be pulled", since
        )
    if _DENIED.search(whole):
        return _lasting(
            StartupProblem.IMAGE_REFUSED, f"Image {image} may not be pulled: its registry refuses", since
        )
    if _ABSENT.search(whole):
        return _lasting(StartupProblem.IMAGE_MISSING, f"Image {image} does not exist in its registry", since)
    why = shortened(message if "Back-off" not in message or not event_message else event_message)
    return Obstacle(
        hurdle=StartupProblem.IMAGE_FAILED, text=f"Image {image} cannot be pulled: {why}", since=since
    )


def settings(message: str, since: float | None) -> Obstacle:
    """Return which Secret or ConfigMap a container lacks, or why else it cannot be configured."""
    if key := _KEY.search(message):
        kind = _KINDS[key["kind"].lower()]
        return _lasting(StartupProblem.SETTINGS, f"The {kind} {key['name']} has no key {key['key']}", since)
    if missing := _OBJECT.search(message):
        kind = _KINDS[missing["kind"].lower()]
        return _lasting(StartupProblem.SETTINGS, f"The {kind} {missing['name']} does not exist", since)
    if _ROOT.search(message):
        why = "The image names no user but root (or one without a number), and the pod must not run as root"
        return _lasting(StartupProblem.START_FAILED, why, since)
    return _lasting(
        StartupProblem.START_FAILED, f"A container cannot be configured: {shortened(message)}", since
    )


def _from_events(events: list[EventReport], since: float | None) -> Obstacle | None:
    known = (*_MOUNT_TROUBLE, *_PULL_NEWS)
    last = next(
        (event for event in reversed(events) if event.reason in known and _FIRST_TRY not in event.message),
        None,
    )
    if last is not None and last.reason in _MOUNT_TROUBLE:
        return from_mount(last.message, since)
    if last is not None and last.reason == "Pulling":
        image = last.message.partition('"')[2].partition('"')[0]
        return Obstacle(hurdle=StartupProblem.PULLING, text=f"Pulling image {image}", since=last.time)
    if (
        sandbox := next(
            (event for event in reversed(events) if event.reason == "FailedCreatePodSandBox"), None
        )
    ) is None:
        return None
    why = f"The node cannot create the pod's network: {shortened(sandbox.message)}"
    return Obstacle(hurdle=StartupProblem.START_FAILED, text=why, since=since)


def from_pull(message: str, since: float | None) -> Obstacle | None:
    """Return the image or configuration problem in a kubelet's event, None if the event has no new cause."""
    image = message.partition('image "')[2].partition('"')[0]
    if image:
        return _image(image, message, "", [], since)
    return settings(message, since) if _OBJECT.search(message) or _KEY.search(message) else None


def from_mount(message: str, since: float | None) -> Obstacle | None:
    """Return the volume problem in an event, None for a first try."""
    if _FIRST_TRY in message:
        return None
    if _OBJECT.search(message):
        return settings(message, since)
    claim = _CLAIM.search(message)
    what = f"The volume claim {claim['name']}" if claim else "A volume"
    return Obstacle(
        hurdle=StartupProblem.VOLUME, text=f"{what} cannot be mounted: {shortened(message)}", since=since
    )


def _plain(pod: Pod, since: float | None) -> Obstacle:
    running = next(
        (
            status
            for status in parts(pod, "status", "initContainerStatuses")
            if part(status, "state", "running")
        ),
        None,
    )
    if running is not None:
        return Obstacle(hurdle=StartupProblem.PREPARING, text="Preparing the pod", since=since)
    return Obstacle(hurdle=StartupProblem.STARTING, text="Starting containers", since=since)


def _lasting(hurdle: StartupProblem, sentence: str, since: float | None) -> Obstacle:
    return Obstacle(hurdle=hurdle, text=sentence, since=since, lasting=True)


def shortened(message: str) -> str:
    """Return a runtime's message without its prefixes, as one line."""
    line = _RPC.sub("", " ".join(message.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


_KINDS = {"secret": "secret", "configmap": "config map"}
