"""Notices of a cluster's jobs: the notifier follows them there, and a real mail server takes the mails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place
from tests.mail_server import mail_server

from mpijob import Client, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.client.integrations import webhooks
from mpijob.model.spec.job import Notify
from mpijob.settings import CallbackSetting


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "notices") as place:
        yield place


@pytest.mark.req("PMV-006")
def test_a_cluster_job_tells_by_mail_whom_it_names_when_it_fails(place: Place, tmp_path: Path) -> None:
    stop = threading.Event()
    with mail_server() as (port, mails):
        mail = CallbackSetting(
            url=f"smtp://127.0.0.1:{port}",
            sender="m@example.org",
            domains=("example.org",),
            allow_private=True,
        )
        settings = msgspec.structs.replace(place.settings, home=str(tmp_path), callbacks=(mail,))
        with Client(KubernetesBackend(settings), settings=settings) as client:
            notifier = threading.Thread(target=webhooks.run, args=(client, stop), daemon=True)
            notifier.start()
            try:
                wish = Notify(to="ann@example.org", on=("started", "failed"))
                job = place.client.submit(a_job("told", "sleep 3; exit 7", notify=(wish,)))
                assert job.spec.notify == (wish,)
                assert job.wait(PATIENCE).phase is Phase.FAILED
                eventually(lambda: len(mails) == 2, "both mails", PATIENCE)
            finally:
                stop.set()
                notifier.join(30)
    words = [str(one.message["Subject"]).split()[2] for one in mails]
    assert words == ["Running:", "Failed:"]
    assert {one.to for one in mails} == {("ann@example.org",)}
