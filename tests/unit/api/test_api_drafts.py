"""The verbs around a job that is being written, and those about the place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.api_support import Browser, served, settled

from mpijob.api import openapi, routes
from mpijob.api.handlers import feedback
from mpijob.backends.memory import MemoryBackend, Outcome, Script


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Browser]:
    monkeypatch.setenv("MPIJOB_SETTINGS", str(tmp_path / "settings.toml"))
    script = Script(jobs={"bad-*": Outcome(exit_code=3, worker=1, lines=("rank {rank} of {world}",))})
    with served(MemoryBackend(script=script)) as one:
        yield one.sign_in()


@pytest.mark.req("FR-016")
def test_a_text_is_read_and_changed_with_its_notes(browser: Browser) -> None:
    text = "name: a  # mine\ncommand: [echo, hello world]\nfuture: 1\n"
    read = browser.post("/drafts/edit", {"yaml": text}).json()
    assert (read["yaml"], read["command_line"]) == (text, "echo 'hello world'")
    assert read["unknown"] == ["future"]
    assert [(one["field"], one["line"]) for one in read["findings"]] == [("future", 3)]
    changed = browser.post("/drafts/edit", {"yaml": text, "changes": {"workers": 3}}).json()
    assert changed["yaml"] == text + "workers: 3\n"
    assert changed["job"]["workers"] == 3
    whole = browser.post("/drafts/edit", {"yaml": text, "job": read["job"] | {"name": "b"}}).json()
    assert whole["yaml"] == text.replace("name: a", "name: b")


def test_a_text_that_is_none_keeps_its_letters_and_tells_where(browser: Browser) -> None:
    told = browser.post("/drafts/edit", {"yaml": "name: [a", "changes": {"workers": 3}}).json()
    assert (told["yaml"], told["job"]) == ("name: [a", None)
    assert told["findings"][0]["line"] == 1


@pytest.mark.req("PMV-001")
def test_a_template_is_kept_used_and_removed(browser: Browser) -> None:
    body = {"name": "mine", "yaml": "name: a\ncommand: [a]\ndescription: my own\n"}
    assert browser.post("/templates", body).status_code == 201
    assert browser.post("/templates", body).status_code == 409
    found = {one["name"]: one for one in browser.get("/templates").json()["items"]}
    assert (found["mine"]["origin"], found["mine"]["description"]) == ("own", "my own")
    assert browser.delete("/templates/mine").status_code == 204
    assert browser.delete("/templates/mine").status_code == 404
    assert browser.post("/templates", body | {"name": "../up"}).status_code == 400


@pytest.mark.req("PMV-010")
def test_a_template_is_shared_with_a_namespace_and_removed_there(browser: Browser) -> None:
    body = {"name": "ours", "yaml": "name: a\ncommand: [a]\nworkers: 3\n", "share": True, "namespace": "cv"}
    made = browser.post("/templates", body)
    assert (made.status_code, made.json()["namespace"], made.json()["owner"]) == (201, "cv", "me")
    told = browser.get("/templates?namespace=cv").json()
    assert (told["may_share"], told["notice"]) == (True, "")
    (ours,) = [one for one in told["items"] if one["origin"] == "shared"]
    assert (ours["name"], ours["namespace"], ours["writable"]) == ("ours", "cv", True)
    assert "workers: 3" in ours["yaml"]
    assert "ours" not in {one["name"] for one in browser.get("/templates").json()["items"]}
    assert browser.post("/templates", body).status_code == 409
    assert browser.post("/templates", body | {"overwrite": True}).status_code == 201
    secret = {"yaml": "name: a\ncommand: [a]\nenv: {API_TOKEN: canary}\n", "name": "secret"}
    refused = browser.post("/templates", body | secret)
    assert (refused.status_code, "canary" in refused.text) == (400, False)
    assert browser.delete("/templates/ours?namespace=cv").status_code == 403
    assert browser.delete("/templates/ours?namespace=cv&shared=true").status_code == 204
    assert browser.delete("/templates/ours?namespace=cv&shared=true").status_code == 404


def test_a_form_is_offered_what_was_used(browser: Browser) -> None:
    browser.create("one", image="quay.io/team/mpi:1", queue="gpu")
    offered = browser.get("/choices").json()
    assert [one["name"] for one in offered["images"]] == ["quay.io/team/mpi:1"]
    assert [one["name"] for one in offered["queues"]] == ["gpu"]
    assert [one["name"] for one in offered["projects"]] == ["default"]


@pytest.mark.req("PMV-008")
def test_earlier_runs_give_advice(browser: Browser) -> None:
    told = browser.post("/drafts/advice", {"job": {"name": "x", "command": ["true"]}}).json()
    assert (told["counsel"]["runs"], told["estimate"]) == (0, None)


@pytest.mark.thorough
@pytest.mark.parametrize("resources", [{"memory": "4GB"}, {"cpu": "2 cores"}, {"cpu": ""}])
@pytest.mark.parametrize("path", ["/fit", "/drafts/advice", "/plan"])
def test_an_amount_that_is_none_is_refused_with_what_to_write(
    browser: Browser, path: str, resources: dict[str, str]
) -> None:
    job = {"name": "x", "workers": 2, "command": ["true"], "resources": resources}
    answer = browser.post(path, {"job": job})
    (found,) = answer.json()["findings"]
    assert (answer.status_code, found["code"]) == (400, "BAD_AMOUNT")


@pytest.mark.req("D-migrate")
def test_a_script_of_another_kind_becomes_a_job(browser: Browser) -> None:
    script = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4\nsrun ./model\n"
    (made,) = browser.post("/drafts/convert", {"text": script}).json()["items"]
    assert (made["jobs"][0]["workers"], made["stage"]) == (2, "check"), "no file goes along with a text alone"
    assert not made["jobs"][0]["code"].get("path")
    assert browser.post("/drafts/convert", {"text": "nothing at all"}).status_code == 400


def test_queues_limits_and_rights_of_a_namespace_are_told(browser: Browser) -> None:
    browser.create("one", queue="gpu", labels={"memory.mpijob/outcome": "hangs"})
    told = browser.get("/queues").json()
    assert [(one["name"], one["running"], one["waiting"]) for one in told["items"]] == [("gpu", 1, 0)]
    rights = browser.get("/rights").json()
    assert "create" in rights["may"]
    assert rights["why"] == {}
    assert browser.get("/budgets").json() == {"items": []}
    assert browser.get("/migration").status_code in (400, 501)


@pytest.mark.req("PMV-003")
def test_jobs_are_compared(browser: Browser) -> None:
    browser.create("one", workers=2)
    browser.create("two", workers=3)
    told = browser.get("/compare?job=default/one&job=default/two").json()
    assert {"field": "workers", "values": [2, 3]} in told["differences"]
    assert browser.get("/compare?job=default/one").status_code == 400
    assert browser.get("/compare?job=one").status_code == 400
    assert browser.get("/patterns?days=1").json()["failed"] == 0


def test_a_configuration_is_handed_over_in_each_form(browser: Browser) -> None:
    browser.create("one", image="quay.io/team/mpi:1")
    assert browser.get("/trainjobs/default/one/export").text.startswith("name: one\n")
    for form, word in (
        ("json", '"name"'),
        ("trainjob", "TrainJob"),
        ("mpijob", "kind: MPIJob"),
        ("sbatch", "#SBATCH"),
    ):
        answer = browser.get(f"/trainjobs/default/one/export?format={form}")
        assert word in answer.text, form
        assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_a_configuration_hides_secrets_and_a_copy_to_begin_with_has_them(browser: Browser) -> None:
    env = {"DB_PASSWORD": "canary-named", "CONN": "postgresql://bob:canary-address@db/x"}
    words = ["train", "--api-key=canary-option", "--password", "canary-argument"]
    for name, more in (("one", env), ("two", {})):
        job = {"name": name, "workers": 2, "image": "quay.io/team/mpi:1", "command": words, "env": more}
        assert browser.post("/trainjobs", {"job": job}).status_code == 201
    for form in ("yaml", "json", "trainjob", "mpijob", "sbatch"):
        text = browser.get(f"/trainjobs/default/one/export?format={form}").text
        assert "canary" not in text, form
        assert "***" in text, form
    told = browser.get("/compare?job=default/one&job=default/two").text
    assert "DB_PASSWORD" in told
    assert "canary" not in told
    copy = browser.get("/trainjobs/default/one/export?values=true").text
    assert {
        word for word in ("named", "address", "option", "argument") if f"canary-{word}" not in copy
    } == set()


@pytest.mark.req("B-retry")
def test_a_job_is_run_again_and_its_attempts_are_told(browser: Browser) -> None:
    browser.create("bad-one")
    settled(browser, {"Failed": 1})
    assert browser.post("/trainjobs/default/bad-one/retry", {"with_fix": 99}).status_code in (400, 404)
    assert browser.post("/trainjobs/default/bad-one/retry").status_code == 200
    told = browser.get("/trainjobs/default/bad-one/attempts").json()["items"]
    assert {one["name"] for one in told} == {"bad-one"}


@pytest.mark.req("SC-012")
def test_opinions_on_help_are_counted(browser: Browser, tmp_path: Path) -> None:
    browser.room.opinions = feedback.OpinionBox(str(tmp_path))
    for helpful in (True, True, False):
        assert browser.post("/opinions", {"topic": "field:workers", "helpful": helpful}).status_code == 204
    assert browser.post("/opinions", {"topic": "<b>", "helpful": True}).status_code == 400
    again = feedback.OpinionBox(str(tmp_path))
    assert [(one.topic, one.yes, one.no) for one in again.all()] == [("field:workers", 2, 1)]


def test_every_verb_has_a_name_of_its_own() -> None:
    document = openapi.document(routes.ROUTES)
    names = Counter(verb["operationId"] for path in document["paths"].values() for verb in path.values())
    assert [name for name, count in names.items() if count > 1] == []
