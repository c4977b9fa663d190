"""One page for all people of a cluster: each brings a token, sees what is theirs, and acts as themselves."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed import services
from tests.e2e.cluster.accounts import ACCOUNT, TEAM_BINDING, allow, an_account
from tests.e2e.cluster.page_support import Listener, Person, Pod, Server, Wire, a_server, server_account
from tests.e2e.cluster.support import Place, eventually, image, own_place

from mpijob.backends.kubernetes.client.resources import CLAIM, NAMESPACE, SECRET

pytestmark = [pytest.mark.testbed, pytest.mark.security]  # the role of data scientists is the test bed's

JOB = {
    "workers": 2,
    "command": ["sh", "-c", "echo hello from $OMPI_COMM_WORLD_RANK"],
    "resources": {"cpu": "100m", "memory": "64Mi"},
}


class Town(NamedTuple):
    """Two teams, and the kubeconfig of the page's own account."""

    one: Place
    other: Place
    kubeconfig: Path


@pytest.fixture(scope="module")
def town(kubeconfig: Path) -> Iterator[Town]:
    with (
        own_place(kubeconfig, "page-a") as one,
        own_place(kubeconfig, "page-b") as other,
        server_account(one) as path,
    ):
        yield Town(one, other, path)


@pytest.fixture(scope="module")
def server(town: Town) -> Iterator[Server]:
    with a_server(town.kubeconfig, town.one.settings.home) as running:
        yield running


def a_person(town: Town, server: Server, name: str, *places: Place) -> Person:
    token = an_account(town.one, name)
    for place in places:
        allow(place, name, town.one)
    return Person(server, token)


@pytest.mark.req("FR-INT-005", "D-api", "FR-023", "B-story5")
def test_two_people_at_one_server_see_and_do_what_is_theirs(town: Town, server: Server) -> None:
    mine, others = town.one.namespace, town.other.namespace
    alice = a_person(town, server, "alice", town.one)
    bob = a_person(town, server, "bob", town.other)
    told = alice.json("GET", "/capabilities")
    assert (told["namespace"], told["administrator"], told["signs_in"]) == (mine, False, "login")
    assert told["user"] == f"system:serviceaccount:{mine}:alice"
    hers, his = Listener(alice), Listener(bob)
    job = {**JOB, "name": "hello", "namespace": mine}
    assert alice.json("POST", "/plan", {"job": job})["plan"]["world"] == 2
    assert (
        alice.json("POST", "/trainjobs", {"job": job})["namespace"] == mine
    )  # the server itself may not create
    try:
        said = alice.ask("GET", f"/trainjobs/{mine}/hello/logs?follow=true").read().decode()
        lines = [line["text"] for batch in said.splitlines() for line in json.loads(batch)["lines"]]
        assert {"hello from 0", "hello from 1"} <= set(lines)
        eventually(lambda: alice.phase("hello") == "Succeeded", "alice's list shows the end", 60)
        eventually(lambda: "hello" in hers.upserted, "alice's stream told of it")
        assert (bob.names(), his.upserted) == ([], set())
        for path in ("", "/logs", "/events", "/why", "/metrics", "/export", "/attempts"):
            status, refusal = bob.status("GET", f"/trainjobs/{mine}/hello{path}")
            assert status == 403
            assert f"lacks 'list' permission for MPIJobs in namespace '{mine}'" in refusal["message"]
        assert bob.status("DELETE", f"/trainjobs/{mine}/hello")[0] == 403
        assert bob.status("POST", "/trainjobs", {"job": job})[0] == 403
        assert bob.json("GET", "/capabilities")["namespace"] == others
        assert Person(server, "guessed").status("GET", "/trainjobs")[0] == 401
        offered = alice.json("GET", "/choices")
        assert [one["name"] for one in offered["projects"]] == [mine]
    finally:
        alice.ask("DELETE", f"/trainjobs/{mine}/hello")
    eventually(lambda: alice.names() == [], "it is gone from the list", 60)


@pytest.mark.req("R4")
def test_a_person_is_offered_their_own_project_and_what_is_in_it_by_name(town: Town, server: Server) -> None:
    place, display = town.one, "openshift.io/display-name"
    place.api.patch(NAMESPACE.path("", place.namespace), {"metadata": {"annotations": {display: "Vision"}}})
    notes = {display: "The lake", "opendatahub.io/connection-type": "s3"}
    labels = {"opendatahub.io/dashboard": "true"}
    place.put(SECRET, "lake", metadata={"annotations": notes, "labels": labels}, stringData={"KEY": "hidden"})
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    place.put(CLAIM, "photos", metadata={"annotations": {display: "All photos"}}, spec=wanted)
    dora = a_person(town, server, "dora", place)
    subject = {"kind": "ServiceAccount", "name": "dora", "namespace": place.namespace}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    place.put(TEAM_BINDING, "dora-edits", roleRef=ref, subjects=[subject])
    own = [{"name": place.namespace, "text": "Vision"}]
    eventually(lambda: dora.json("GET", "/choices")["projects"] == own, "its display name is known", 60)
    eventually(lambda: dora.json("GET", "/choices")["connections"], "the right to look has arrived", 60)
    offered = dora.json("GET", "/choices")
    assert offered["connections"] == [{"name": "lake", "text": "The lake (s3)"}]
    (claim,) = [one for one in offered["claims"] if one["name"] == "photos"]
    assert claim["text"].startswith("All photos")
    assert "hidden" not in json.dumps(offered)


def test_a_job_made_in_the_page_takes_nothing_of_the_server(town: Town, server: Server) -> None:
    carol = a_person(town, server, "carol", town.one)
    job = {**JOB, "name": "thief", "namespace": town.one.namespace}
    secrets = "/var/run/secrets/kubernetes.io/serviceaccount"
    for more in ({"code": {"path": secrets}}, {"secrets": [{"env": "T", "source": f"file:{secrets}/token"}]},
                 {"secrets": [{"env": "T", "source": "env:KUBECONFIG"}]}):  # fmt: skip
        for path in ("/plan", "/trainjobs", "/fit"):
            status, refusal = carol.status("POST", path, {"job": job | more})
            assert (status, refusal["findings"][0]["code"]) == (400, "SERVER_FILES")


@pytest.mark.long
@pytest.mark.req("FR-INT-005")
def test_a_right_and_a_login_that_are_taken_away_are_gone_within_half_a_minute(
    town: Town, server: Server
) -> None:
    place = town.other
    dora, erik = (a_person(town, server, name, place) for name in ("dora", "erik"))
    dora.json("POST", "/trainjobs", {"job": {**JOB, "name": "lasting", "namespace": place.namespace}})
    try:
        eventually(lambda: dora.names() == erik.names() == ["lasting"], "it is in both lists")
        streams = [Listener(dora), Listener(erik)]
        eventually(lambda: all(one.heard for one in streams), "both streams speak")
        place.api.delete(TEAM_BINDING.path(place.namespace, "dora"))
        town.one.api.delete(ACCOUNT.path(town.one.namespace, "erik"))
        eventually(lambda: dora.names() == [], "dora sees nothing any more", 40)
        eventually(lambda: "reset" in {event for event, _ in streams[0].heard}, "her stream begins anew", 40)
        eventually(lambda: erik.status("GET", "/trainjobs")[0] == 401, "erik is no longer known", 60)
        eventually(lambda: streams[1].last[0] == "bye", "his stream ends", 60)
        assert streams[1].last[1]["trouble"]["hint"] == "sign in again"
    finally:
        place.client.delete("lasting")


@pytest.mark.req("D-api")
def test_a_stream_goes_on_at_another_server_and_at_one_that_was_killed(town: Town, server: Server) -> None:
    place = town.one
    frida = a_person(town, server, "frida", place)
    with ExitStack() as stack:
        two = [server, stack.enter_context(a_server(town.kubeconfig, place.settings.home))]
        last = ""
        for number in range(6):  # every request goes to any of them
            frida.server = random.choice(two)
            stream = Listener(frida, **({"last-event-id": last} if last else {}))
            assert stream.first()[0] in ("beat", "change", "reset")
            last = stream.last[1]["rev"]
            stream.close()
            assert frida.json("GET", "/session")["csrf"]
            assert frida.status("POST", "/drafts/edit", {"yaml": f"name: a{number}\n"})[0] == 200
        frida.server = two[1]
        port, stream = two[1].port, Listener(frida)
        stream.first()
        two[1].end()
        two[1].start(port)
        again = Listener(frida, **{"last-event-id": stream.last[1]["rev"]})
        assert again.first()[0] == "reset"
        assert frida.status("GET", "/trainjobs")[0] == 200


@pytest.mark.long
@pytest.mark.parametrize("outage_seconds", [36.0, 60.0])
def test_an_api_server_that_is_gone_for_long_is_told_with_the_age_of_what_is_seen(
    town: Town, tmp_path: Path, outage_seconds: float
) -> None:
    wire = Wire(town.kubeconfig, tmp_path)
    try:
        with a_server(wire.kubeconfig, str(tmp_path)) as server:
            gina = a_person(town, server, f"gina-{outage_seconds:.0f}", town.one)
            assert gina.status("GET", "/trainjobs")[0] == 200
            stream = Listener(gina)
            eventually(lambda: stream.heard, "it speaks")
            cut = time.time()
            wire.cut()
            told = eventually(
                lambda: next((one for _, one in stream.heard if one["trouble"]), None), "the stream says so"
            )
            assert "cannot" in told["trouble"]["message"]
            eventually(lambda: gina.status("GET", "/trainjobs")[0] == 503, "nothing is shown unasked", 60)
            while time.time() - cut < outage_seconds:
                time.sleep(1.0)  # the outage itself
            age = time.time() - stream.last[1]["seen"]
            assert outage_seconds - 5 < age < outage_seconds + 15
            wire.mend()
            eventually(lambda: stream.last[1]["trouble"] is None, "the same stream goes on")
            assert time.time() - stream.last[1]["seen"] < 10
            eventually(lambda: gina.status("GET", "/trainjobs")[0] == 200, "and so does the list", 30)
    finally:
        wire.close()


def test_the_page_runs_as_a_pod_with_the_rights_that_are_shipped(town: Town) -> None:
    pod = Pod(town.one, services.provide())
    try:
        hana = Person(pod, an_account(town.one, "hana"))
        allow(town.one, "hana", town.one)
        told = hana.json("GET", "/capabilities")
        assert (told["user"], told["cluster"]) == (f"system:serviceaccount:{town.one.namespace}:hana", True)
        assert hana.status("GET", "/trainjobs")[0] == 200
        job = {**JOB, "name": "planned", "namespace": town.one.namespace, "image": image("openmpi4")}
        assert hana.json("POST", "/plan", {"job": job})["plan"]["world"] == 2
        assert Person(pod, "guessed").status("GET", "/trainjobs")[0] == 401
        pod.host = "evil.example"
        assert hana.status("GET", "/trainjobs")[0] == 421
    finally:
        pod.end()
