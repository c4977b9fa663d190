"""The fit broker with real users: it sees with its own few rights, and answers each user for their namespace alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.cluster.accounts import TEAM_BINDING, shipped_account
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.support import PATIENCE, Place, a_job, own_place

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotAllowed
from mpijob.model import Resources
from mpijob.model.platform.fit import Verdict

ROOT = Path(__file__).parents[3]
RIGHTS = ROOT / "deploy" / "base" / "broker" / "rights.yaml"
pytestmark = [pytest.mark.testbed, pytest.mark.req("FR-RES-001", "FR-RES-005")]


@contextmanager
def a_broker(kubeconfig: Path, home: str) -> Iterator[str]:
    environ = os.environ | {"KUBECONFIG": str(kubeconfig), "MPIJOB_ENGINE": "kubernetes", "MPIJOB_HOME": home}
    argv = [sys.executable, "-m", "mpijob", "broker", "--port", "0"]
    process = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "listening on " in line, line
        yield line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def as_user(place: Place, kubeconfig: Path, broker: str) -> Place:
    """Return the place as a user who names the broker."""
    import msgspec

    from mpijob import Client
    from mpijob.backends.kubernetes.backend import KubernetesBackend

    mine = Place(kubeconfig, place.namespace, place.settings.home)
    mine.settings = msgspec.structs.replace(mine.settings, broker=broker)
    mine.client = Client(KubernetesBackend(mine.settings), settings=mine.settings)
    return mine


def test_each_user_is_answered_for_their_namespace_from_what_they_may_not_read(
    kubeconfig: Path, kubeconfig_of: Callable[[str], Path]
) -> None:
    with own_place(kubeconfig, "brokered") as place, a_queue(place, "600m") as queue:
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "data-scientist"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]
        place.put(TEAM_BINDING, "carol", roleRef=ref, subjects=subjects)
        with (
            shipped_account(place, "broker", RIGHTS) as account,
            a_broker(account, place.settings.home) as url,
        ):
            carol, without = (as_user(place, kubeconfig_of("carol"), where) for where in (url, ""))
            small = a_job("small", "sleep 600", workers=1, queue=queue)
            assert without.client.fit(small).verdict is Verdict.UNKNOWN  # she may read no ClusterQueue
            assert carol.client.fit(small).verdict is Verdict.NOW
            running = carol.client.submit(small)
            running.wait(PATIENCE, {Phase.RUNNING})
            waits = carol.client.fit(a_job("second", workers=2, queue=queue))
            assert (waits.verdict, waits.starts_now) == (Verdict.WAITS, 1)
            huge = Resources(cpu="500m", memory="128Mi")
            assert (
                carol.client.fit(a_job("huge", workers=4, queue=queue, resources=huge)).verdict
                is Verdict.NEVER
            )
            notices = carol.client.plan(a_job("second", workers=2, queue=queue)).notices
            assert any(one.code == "WILL_WAIT" for one in notices)
            dave = as_user(place, kubeconfig_of("dave"), url)
            with pytest.raises(NotAllowed):
                dave.client.fit(small)
            running.delete()


def test_the_brokers_own_rights_create_and_change_nothing(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "powerless") as place, shipped_account(place, "broker", RIGHTS) as account:
        broker = Place(account, place.namespace, place.settings.home)
        for verb in ("create", "delete", "patch"):
            for kind in ("pods", "trainjobs", "secrets", "clusterqueues.kueue.x-k8s.io"):
                said = broker._kubectl("auth", "can-i", verb, kind, stdin="").stdout
                assert said.strip() == "no", (verb, kind)
        assert broker._kubectl("auth", "can-i", "get", "secrets", stdin="").stdout.strip() == "no"
        assert broker.api.list(resources.NODE.path()).items
