"""What a form can offer: own projects by display name, claims and data connections by name, nothing secret."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.api_town import Person, Town, at
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.admin import form_options as choices
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.memory import MemoryBackend
from mpijob.client import Client
from mpijob.client.submit import form_options as choosing
from mpijob.model.platform.form_options import Option
from mpijob.settings import ObjectsSetting, Settings

DISPLAY = "openshift.io/display-name"
TYPE = "opendatahub.io/connection-type"


def put(store: Store, kind: resources.Kind, name: str, place: str = "", **more: Any) -> None:
    notes, labels = more.pop("notes", {}), more.pop("labels", {})
    metadata = {"name": name, "annotations": notes, "labels": labels}
    store.create(kind.path(place), {"metadata": metadata, **more})


@pytest.fixture
def store() -> Store:
    store = Store()
    put(store, resources.PROJECT, "team-cv", notes={DISPLAY: "Vision"})
    put(store, resources.PROJECT, "scratch")
    shown = {"opendatahub.io/dashboard": "true"}
    put(store, resources.SECRET, "lake", "team-cv", notes={DISPLAY: "The lake", TYPE: "s3"}, labels=shown)
    put(store, resources.SECRET, "login", "team-cv", notes={DISPLAY: "A login"}, labels=shown)
    put(store, resources.SECRET, "hidden", "team-cv", notes={TYPE: "s3"})
    put(
        store, resources.CLAIM, "photos", "team-cv", notes={DISPLAY: "All photos"},
        spec={"accessModes": ["ReadWriteMany"]}, status={"capacity": {"storage": "10Gi"}},
    )  # fmt: skip
    put(store, resources.CLAIM, "others", "team-nlp")
    return store


@pytest.mark.req("R4")
def test_a_project_offers_its_claims_and_connections_by_name(store: Store) -> None:
    found = choices.read_choices(store, "team-cv", frozenset({resources.PROJECT.api}))
    assert found.projects == (Option("scratch"), Option("team-cv", "Vision"))
    assert found.claims == (Option("photos", "All photos 10Gi ReadWriteMany"),)
    assert found.connections == (Option("lake", "The lake (s3)"),)
    assert found.unread == ()


@pytest.mark.req("R4")
@pytest.mark.security
def test_what_may_not_be_looked_at_is_said_and_hides_nothing_else(store: Store) -> None:
    def forbid(method: str, path: str) -> None:
        if path.endswith("/secrets"):
            raise ApiError("forbidden", status=403, reason="Forbidden")

    store.before = forbid
    found = choices.read_choices(store, "team-cv", frozenset({resources.PROJECT.api}))
    assert (found.connections, found.unread) == ((), ("data connections",))
    assert [one.name for one in found.claims] == ["photos"]


@pytest.mark.req("R4")
@pytest.mark.security
def test_people_are_offered_their_own_projects_by_display_name() -> None:
    town = Town()
    room = town.room()
    room.projects._known = (float("inf"), (Option("team-a", "Vision"), Option("team-b", "Language")))
    with at(room) as http:
        offered = [
            Person(http, f"{who}-token").get("/choices").json()["projects"] for who in ("alice", "root")
        ]
    assert offered[0] == [{"name": "team-a", "text": "Vision"}]
    assert [one["text"] for one in offered[1]] == ["Vision", "Language"]


@pytest.mark.req("R4")
@pytest.mark.security
def test_one_machine_offers_its_own_connections_without_their_keys() -> None:
    lake = ObjectsSetting(endpoint="http://127.0.0.1:1", bucket="training", access_key="key-of-the-lake")
    settings = Settings(home="/nowhere", connections={"lake": lake})
    found = choosing.choices(Client(MemoryBackend(), settings=settings))
    assert found.connections == (Option("lake", "training (s3)"),)
    assert b"key-of-the-lake" not in msgspec.json.encode(found)
