"""A request to a cluster's API server, with what admission checks in it.

`request_reader` reads it, the webhook adds what is known around it, and `admission/webhook` decides.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mpijob.errors import Finding
from mpijob.model.platform.cluster import Ask, Bound, Ceiling
from mpijob.model.platform.facts import Quota
from mpijob.model.platform.governance import NamespaceLimits
from mpijob.model.spec.job import MPIJob
from mpijob.model.spec.network import Destination

# The same limit applies to ConfigMaps: each is an access review, and the API server's timeout for webhooks is short.
MOST_SECRETS = 32
MOST_ACCOUNTS = 8


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """One pod template, with what it grants beyond the needs of an ordinary job.

    `accounts` are the service accounts whose token its pods would have.
    """

    part: str
    images: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    accounts: tuple[str, ...] = ()
    priority_class: str = ""
    privileges: tuple[str, ...] = ()


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One request: who creates or changes what.

    `job` is None for a runtime, for a job that is none of MPI, and for one that cannot be read; `unreadable` then says
    why. `gpus` are those of all its pods, `worker_gpus` those of one worker, of every kind and container. `images` and
    priority `classes` are all that it names, `secrets` and `config_maps` those that pods would be newly given,
    `changed` the fields that an update changes though jobs do not change; `scaled` says that an elastic job gets
    another number of workers. `uid` is believed where it was issued for this user (`uid_is_own`), `reidentified`
    names labels and annotations of its identity that an update changes, `contradictions` the fields of which our
    annotation says something else than the document, `egress` where its pods want to go.

    Of an update only the images and classes are told that are new, and `rewritten` says whether the queue and the
    time that a job may take are: such an update is held against limits that leave the rest of the job alone.
    """

    operation: str
    kind: str
    namespace: str
    name: str
    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    uid_is_own: bool = True
    owner: str = ""
    reidentified: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    egress: tuple[Destination, ...] = ()
    job: MPIJob | None = None
    unreadable: str = ""
    gpus: int = 0
    worker_gpus: int = 0
    queue: str = ""
    deadline_seconds: float | None = None
    rewritten: frozenset[str] = frozenset()
    pods: tuple[Pods, ...] = ()
    images: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scaled: bool = False
    traps: tuple[Finding, ...] = ()


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What is known around a request: the namespace's limits, what runs there, what the user may not read."""

    limits: NamespaceLimits = NamespaceLimits()
    jobs_running: int = 0
    quota: Quota | None = None
    asks: tuple[Ask, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    bounds: tuple[Bound, ...] = ()
    unreadable_secrets: tuple[str, ...] = ()
    unreadable_config_maps: tuple[str, ...] = ()
    forbidden_accounts: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Result: refusals stop the request, warnings are shown to the user."""

    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
