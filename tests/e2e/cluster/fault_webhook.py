"""Faults of the admission webhook: it is killed at every step, silent, has an expired certificate, or is one of two.

It runs as a process of this machine that the API server is told to ask for one test's namespaces only; of the two
that stand for high availability each is a pod behind the service. By our promise its loss lets nothing unjudged
pass; a namespace that is open is not blocked, and waits at most three seconds.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from testbed import places
from tests.e2e.cluster import tollgate
from tests.e2e.cluster.admission_support import TESTED, Governed, by_hand, governed
from tests.e2e.cluster.fault_checks import Moment, server_audit
from tests.e2e.cluster.governed import Service, doomed
from tests.e2e.cluster.support import RESTRICTED, Place, eventually, own_place

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.cluster.webhook import certificates, configuration, tls_secret
from mpijob.cluster.webhook.configuration import MUTATING, VALIDATING

STEPS = 3  # its own: the Secret, and the bundle in both configurations
KILLS = 3
LONGEST_SECONDS = 3.0 + 2.0  # what it may take, and a busy machine


class Asked:
    """What makes the API server ask a webhook on this machine about two namespaces, one open and one closed."""

    def __init__(self, place: Place, closed: Place) -> None:
        self.place, self.closed = place, closed
        self.name = f"mpijob-webhook-{place.namespace}"
        with socket.create_server(("", 0)) as free:
            self.port = int(free.getsockname()[1])

    @property
    def words(self) -> tuple[str, ...]:
        """How the webhook is started."""
        return (
            "webhook", f"--port={self.port}", f"--address={places.HOST_IP}", f"--service-name={self.name}",
            f"--service-namespace={self.place.namespace}", "--renew-every=1",
        )  # fmt: skip

    def configurations(self) -> Iterator[Document]:
        """Yield both configurations, narrowed to the two namespaces."""
        for one in configuration.configurations(self.place.namespace, name=self.name):
            for webhook in one["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://{places.HOST_IP}:{self.port}{path}"}
                ours = {"key": TESTED, "operator": "In", "values": [self.name]}
                webhook["namespaceSelector"]["matchExpressions"].append(ours)
            yield one

    def create(self, place: Place, name: str) -> float:
        """Create a job that rests, and return how long that took; raise where it is refused."""
        begun = time.monotonic()
        place.api.create(resources.MPIJOB.path(place.namespace), by_hand(name))
        return time.monotonic() - begun

    def is_answered(self) -> bool:
        """Whether closed namespaces may create, which is whether the webhook answers."""
        try:
            place = self.closed
            place.api.create(resources.MPIJOB.path(place.namespace), by_hand("probe"), dry_run=True)
        except ApiError:
            return False
        return True


@contextmanager
def asked(moment: Moment) -> Iterator[Asked]:
    """Have a webhook asked for a while, whether it is there or not."""
    place = moment.place
    with own_place(place.kubeconfig, "fault-closed", RESTRICTED) as closed:
        made = Asked(place, closed)
        for one, words in ((place, {"mpijob.dev/admission": "open"}), (closed, {})):
            body = {"metadata": {"labels": {TESTED: made.name, **words}}}
            one.api.patch(resources.NAMESPACE.path("", one.namespace), body)
        try:
            for document in made.configurations():
                kind = MUTATING if document["kind"] == MUTATING.name else VALIDATING
                place.api.create(kind.path(), document)
            yield made
        finally:
            for kind in (MUTATING, VALIDATING):
                place.api.delete(kind.path("", made.name))


@contextmanager
def served(made: Asked) -> Iterator[Service]:
    """Run the webhook until the API server hears its answers."""
    service = Service(made.place, *made.words, ready="serving")
    try:
        eventually(made.is_answered, "the API server is answered", 60)
        yield service
    finally:
        service.kill()


def killed(moment: Moment) -> None:
    """Killed at each of its own steps, again and again: jobs are created all the same, and the last one serves."""
    place, chance = moment.place, moment.chance
    with asked(moment) as made:
        for number in range(KILLS):
            step, after = chance.randint(1, STEPS), chance.random() < 0.5
            place.api.delete(
                resources.SECRET.path(place.namespace, f"{made.name}-keys")
            )  # it has all steps before it
            with tollgate.opened(step, after=after) as (gate, config):
                with doomed(place, gate, config, *made.words) as service:
                    eventually(
                        lambda: service.process.poll() is not None or made.is_answered(),
                        "killed, or done",
                        60,
                    )
                moment.notes.append(gate.hit)
            assert made.create(place, f"during-{number}") < LONGEST_SECONDS
        with served(made):
            made.create(made.closed, "afterwards")
            _owned_once(made, "afterwards")
        _created(place, {f"during-{number}" for number in range(KILLS)})


def slow(moment: Moment) -> None:
    """It answers nobody for a while: creates cost three seconds, closed namespaces refuse, then all is as before."""
    place, chance = moment.place, moment.chance
    with asked(moment) as made, served(made) as service:
        time.sleep(chance.uniform(0.0, 1.0))  # the fault's own moment
        os.kill(service.process.pid, signal.SIGSTOP)
        try:
            taken = [made.create(place, f"slow-{number}") for number in range(2)]
            assert max(taken) < LONGEST_SECONDS, taken
            assert not made.is_answered()
        finally:
            os.kill(service.process.pid, signal.SIGCONT)
        eventually(made.is_answered, "closed namespaces work again", 30)
        made.create(place, "afterwards")
        _owned_once(made, "afterwards", place)
        _created(place, {"slow-0", "slow-1", "afterwards"})


def expired(moment: Moment) -> None:
    """Its certificate is one that expired a month ago: creates go on, and it makes itself a new one."""
    place = moment.place
    with asked(moment) as made, served(made):
        time.sleep(moment.chance.uniform(0.0, 1.5))  # the fault's own moment between two looks at its keys
        old = certificates.renew((places.HOST_IP,), now=datetime.now(UTC) - timedelta(days=60))
        path = resources.SECRET.path(place.namespace, f"{made.name}-keys")
        tls_secret._write(place.api, path, old, place.api.get(path))
        eventually(lambda: _published(place, old.bundle, made.name), "the old bundle is trusted")
        assert made.create(place, "meanwhile") < LONGEST_SECONDS
        eventually(made.is_answered, "a new certificate is trusted", 30)
        keys = tls_secret.parse_keys(place.api.get(path))
        assert keys is not None
        assert certificates.expiry(keys) > datetime.now(UTC)
        _created(place, {"meanwhile"})


def _published(place: Place, bundle: bytes, name: str) -> bool:
    """Whether the API server was told, and the webhook did not do so at the same moment."""
    try:
        tls_secret.publish_bundle(place.api, bundle, name=name)
    except ApiError as error:
        if error.status != 409:
            raise
        return False
    return True


def _owned_once(made: Asked, name: str, place: Place | None = None) -> None:
    """The webhook has written the owner: it was asked."""
    place = place or made.closed
    kept = place.api.get(resources.MPIJOB.path(place.namespace, name))
    assert "mpijob.dev/owner" in (kept["metadata"].get("annotations") or {})


def _created(place: Place, names: set[str]) -> None:
    """Every job that was accepted is there, once, and no other; nothing of them ran."""
    found = [one["metadata"]["name"] for one in place.api.list(resources.MPIJOB.path(place.namespace)).items]
    assert sorted(found) == sorted(names)
    audited = [
        one["objectRef"]["name"]
        for one in server_audit(place)
        if one["verb"] == "create"
        and one["objectRef"]["resource"] == "mpijobs"
        and not one["requestURI"].count("dryRun")
    ]
    assert sorted(audited) == sorted(names)
    assert not place.api.list(resources.POD.path(place.namespace)).items


# -- two of them -------------------------------------------------------------------------------------
@contextmanager
def two(kubeconfig: Path) -> Iterator[Governed]:
    """Run two webhooks as pods behind their service."""
    with governed(kubeconfig) as webhook:
        webhook.scale(2)
        yield webhook


def one_of_two_killed(moment: Moment) -> None:
    """One of two is killed while jobs are created: none is refused, and closed namespaces are back within seconds."""
    place, webhook = moment.place, moment.shared
    assert isinstance(webhook, Governed)
    eventually(lambda: webhook.ready() == 2 and len(webhook.processes()) == 2, "two are ready", 90)
    body = {"metadata": {"labels": {TESTED: webhook.name, "mpijob.dev/admission": "open"}}}
    place.api.patch(resources.NAMESPACE.path("", place.namespace), body)
    with own_place(place.kubeconfig, "fault-closed", webhook.labels) as closed:
        eventually(lambda: _is_accepted(closed, "probe"), "closed namespaces work", 30)
        os.kill(moment.chance.choice(webhook.processes()), signal.SIGKILL)
        begun = time.monotonic()
        for number in range(20):
            path = resources.MPIJOB.path(place.namespace)
            place.api.create(path, by_hand(f"during-{number}"))
        eventually(lambda: _is_accepted(closed, "afterwards"), "closed namespaces work", 10)
        moment.notes.append(f"closed namespaces again within {1 + int(time.monotonic() - begun)} s")
        _created(place, {f"during-{number}" for number in range(20)})
    webhook.replace_restarted()


def _is_accepted(place: Place, name: str) -> bool:
    try:
        place.api.create(resources.MPIJOB.path(place.namespace), by_hand(name), dry_run=True)
    except ApiError:
        return False
    return True
