"""The verbs of the page's server: what is asked for is answered, what is wrong is said in our sentences."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_support import Browser, names, served, settled, signed_in
from tools import openapi as written

from mpijob import Client, MPIJob
from mpijob.api.live import overview_rows
from mpijob.api.static import Files
from mpijob.backends.memory import MemoryBackend
from mpijob.errors import InvalidJob, MpiJobError

browser = pytest.fixture(signed_in)
HANGS = {"memory.mpijob/outcome": "hangs"}


def lines(answer: Any) -> list[dict[str, Any]]:
    return [line for batch in answer.text.splitlines() for line in json.loads(batch)["lines"]]


@pytest.mark.thorough
@pytest.mark.req("D-api", "FR-002")
def test_a_job_is_made_seen_and_read(browser: Browser) -> None:
    made = browser.create("hello", "echo hello")
    assert (made["name"], made["namespace"], made["owner"]) == ("hello", "default", "me")
    settled(browser, {"Succeeded": 1})
    detail = browser.get("/trainjobs/default/hello").json()
    assert detail["spec"]["workers"] == 2
    assert detail["yaml"].startswith("name: hello\n")
    assert [rank["exit_code"] for rank in detail["state"]["ranks"]] == [0, 0]
    assert [line["text"] for line in lines(browser.get("/trainjobs/default/hello/logs"))] == [
        "hello",
        "hello",
    ]
    events = browser.get("/trainjobs/default/hello/events").json()["items"]
    assert "Succeeded" in [event["reason"] for event in events]
    assert browser.get("/trainjobs/default/hello/metrics").json()["samples"] > 0
    assert browser.get("/trainjobs/default/hello/artifacts").json() == {"items": []}


@pytest.mark.req("B-11", "D-api")
def test_earlier_runs_and_attempts_are_listed_and_read_by_their_numbers(browser: Browser) -> None:
    retried = {"retry": {"limit": 1, "backoff_seconds": 0}}
    for words in ("echo one; exit 3", "echo two"):
        browser.create("train", words, **(retried if "3" in words else {}))
        settled(browser, {"Failed": 1} if "3" in words else {"Succeeded": 1})
    newest, first = browser.get("/trainjobs/default/train/runs").json()["items"]
    assert [(one["run"], one["address"], one["row"]["phase"]) for one in (newest, first)] == [
        (2, "train@2", "Succeeded"),
        (1, "train@1", "Failed"),
    ]
    assert [(one["attempt"], one["phase"], one["exit_code"]) for one in first["attempts"]] == [
        (1, "Failed", 3),
        (2, "Failed", 3),
    ]
    assert first["attempts"][0]["launcher"]["exit_code"] == 3
    for which in ("train@1", "train?run=1", f"train?uid={first['row']['uid']}"):
        assert browser.get(f"/trainjobs/default/{which}").json()["row"]["uid"] == first["row"]["uid"]
    path = "/trainjobs/default/train"
    assert browser.get(f"{path}?run=1&attempt=1").json()["state"].get("attempt", 1) == 1
    assert browser.get(f"{path}/why?run=1&attempt=1").json()["findings"][0]["code"]
    told = browser.get(f"{path}/events?run=1&attempt=1").json()["items"]
    assert {event.get("attempt", 1) for event in told} == {1}
    said = lines(browser.get(f"{path}/logs?run=1&attempt=2&ranks=0"))
    assert [(line["text"], line["attempt"]) for line in said] == [("one", 2)]
    assert "exit 3" in browser.get("/trainjobs/default/train@1/export?attempt=1").text
    compared = browser.get("/compare?job=default/train@1&job=default/train").json()["jobs"]
    assert [(one["run"], one["phase"]) for one in compared] == [(1, "Failed"), (2, "Succeeded")]
    attempts = browser.get("/compare?job=default/train@1&attempt=1&attempt=2").json()["jobs"]
    assert [(one["attempt"], one["account"]["ref"]["name"]) for one in attempts] == [
        (1, "train"),
        (2, "train"),
    ]


@pytest.mark.parametrize(
    ("which", "status"),
    [
        ("train@9", 404),
        ("train@x", 400),
        ("train?run=9", 404),
        ("train?run=0", 400),
        ("train?attempt=7", 404),
    ],
)
def test_a_run_or_attempt_that_there_is_not_is_refused(browser: Browser, which: str, status: int) -> None:
    browser.create("train", "echo one")
    assert browser.get(f"/trainjobs/default/{which}").status_code == status


@pytest.mark.req("D-api")
def test_a_name_alone_is_looked_for_in_the_namespace_of_the_query(browser: Browser) -> None:
    browser.create("here", "echo here")
    browser.create("there", "echo there", namespace="team")
    assert browser.get("/trainjobs/here").status_code == 200
    assert browser.get("/trainjobs/there").status_code == 404
    assert browser.get("/trainjobs/there?namespace=team").json()["row"]["namespace"] == "team"
    assert [
        line["text"]
        for line in lines(browser.get("/trainjobs/there/logs?namespace=team&ranks=0&follow=true"))
    ] == ["there"]


def test_a_job_called_logs_can_be_reached(browser: Browser) -> None:
    browser.create("logs", namespace="team")
    assert browser.get("/trainjobs/logs?namespace=team").json()["row"]["name"] == "logs"


@pytest.mark.req("FR-017", "FR-UI-007")
def test_a_failed_job_says_why_in_the_list_and_in_its_details(browser: Browser) -> None:
    browser.create("bad-job")
    settled(browser, {"Failed": 1})
    row = browser.get("/trainjobs?text=bad-job").json()["items"][0]
    told = browser.get("/trainjobs/default/bad-job/why").json()
    found = told["findings"]
    assert [step["what"] for step in told["timeline"]][-1] == "failed"
    assert {mark["mark"] for mark in told["checklist"]}
    assert row["phase"] == "Failed"
    assert row["why"] == found[0]["message"]
    assert row["cause"] == found[0]["code"]
    assert row["actions"] == ["retry", "clone", "delete"]


@pytest.mark.req("FR-UI-009")
def test_everything_wrong_with_a_draft_is_told_at_its_field(browser: Browser) -> None:
    answer = browser.post("/plan", {"job": {"name": "Not A Name", "workers": 2, "command": [], "slots": -1}})
    assert answer.status_code == 400
    told = {finding["field"]: finding for finding in answer.json()["findings"]}
    assert {"name", "slots", "command"} <= set(told)
    assert all(finding["message"] for finding in told.values())


def test_the_refusal_of_the_page_is_that_of_the_client(browser: Browser) -> None:
    with pytest.raises(InvalidJob) as caught:
        Client(MemoryBackend()).submit(MPIJob(name="x", workers=2, command=("true",), slots=0))
    body = browser.post(
        "/trainjobs", {"job": {"name": "x", "workers": 2, "command": ["true"], "slots": 0}}
    ).json()
    assert body["findings"][0]["message"] == caught.value.findings[0].message
    assert body["hint"] == caught.value.hint


@pytest.mark.req("B-dryrun")
def test_a_plan_starts_nothing(browser: Browser) -> None:
    answer = browser.post("/plan", {"yaml": "name: plan\nworkers: 3\nslots: 2\ncommand: [hostname]\n"})
    assert answer.json()["plan"]["world"] == 6
    assert answer.json()["summary"].startswith("1 launcher + 3 workers = 6 ranks")
    assert browser.get("/trainjobs").json()["total"] == 0


@pytest.mark.req("FR-016")
def test_form_and_file_are_one_document(browser: Browser) -> None:
    job = {"name": "both", "workers": 3, "command": ["python", "train.py"], "env": {"LR": "0.1"}}
    read = browser.post("/drafts", {"job": job}).json()
    again = browser.post("/drafts", {"yaml": read["yaml"]}).json()
    assert again["job"] == job
    assert again["yaml"] == read["yaml"]
    assert again["command_line"] == "python train.py"


def test_a_command_line_is_split_as_a_shell_splits_it(browser: Browser) -> None:
    job = {"name": "words", "workers": 2}
    read = browser.post("/drafts", {"job": job, "command_line": "sh -c 'echo a b'"}).json()
    assert read["job"]["command"] == ["sh", "-c", "echo a b"]
    refused = browser.post("/drafts", {"job": job, "command_line": "echo 'open"}).json()
    assert refused["findings"][0]["field"] == "command"


@pytest.mark.parametrize("body", [{}, {"yaml": "a: 1", "job": {}}])
def test_a_draft_is_either_text_or_fields(browser: Browser, body: dict[str, Any]) -> None:
    assert browser.post("/drafts", body).json()["message"].startswith("the body needs either")


@pytest.mark.req("C-tabs")
def test_the_actions_do_what_the_client_does(browser: Browser) -> None:
    browser.create("long", labels=HANGS)
    assert browser.post("/trainjobs/default/long/suspend").json()["phase"] == "Suspended"
    assert browser.post("/trainjobs/default/long/resume").status_code == 200
    assert browser.post("/trainjobs/default/long/cancel").json()["phase"] == "Cancelled"
    assert browser.post("/trainjobs/default/long/retry").status_code == 200
    copy = browser.post("/trainjobs/default/long/clone", {"changes": {"workers": 3}})
    assert (copy.status_code, copy.json()["name"], copy.json()["workers"]) == (201, "long-2", 3)
    assert browser.delete("/trainjobs/default/long").status_code == 204
    assert names(browser.get("/trainjobs")) == ["long-2"]
    browser.post("/trainjobs/default/long-2/cancel")
    refused = browser.post("/trainjobs/default/long-2/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")


def test_an_elastic_job_is_scaled(browser: Browser) -> None:
    browser.create("e", labels=HANGS, elastic={"max_workers": 4})
    answer = browser.post("/trainjobs/default/e/scale", {"workers": 3})
    assert (answer.status_code, answer.json()["workers"]) == (200, 3)
    assert browser.post("/trainjobs/default/e/scale", {"workers": 9}).json()["code"] == "CONFLICT"
    assert browser.post("/trainjobs/default/e/scale", {"workers": 0}).status_code == 400


def test_several_jobs_are_told_one_by_one(browser: Browser) -> None:
    browser.create("one", labels=HANGS)
    answer = browser.post("/bulk", {"action": "cancel", "jobs": ["default/one", "default/none", "strange"]})
    told = {item["job"]: (item["problem"] or {}).get("code") for item in answer.json()["items"]}
    assert told == {"default/one": None, "default/none": "NOT_FOUND", "strange": "INVALID_JOB"}
    browser.post("/bulk", {"action": "delete", "jobs": ["default/one"]})
    assert names(browser.get("/trainjobs")) == []


@pytest.mark.thorough
@pytest.mark.req("AC2")
def test_lines_are_filtered_by_the_server(browser: Browser) -> None:
    browser.create("talk", 'echo "loss 0.$MPIJOB_RANK"; echo done')
    settled(browser, {"Succeeded": 1})
    assert len(lines(browser.get("/trainjobs/talk/logs"))) == 4
    assert [line["rank"] for line in lines(browser.get("/trainjobs/talk/logs?ranks=1"))] == [1, 1]
    assert [line["text"] for line in lines(browser.get("/trainjobs/talk/logs?regex=0%5C.1"))] == ["loss 0.1"]
    assert len(lines(browser.get("/trainjobs/talk/logs?tail=1"))) == 1
    folded = lines(browser.get("/trainjobs/talk/logs?fold=true&regex=done"))
    assert [(line["source"], line["text"]) for line in folded] == [("Rank-0-1", "done")]
    browser.create("loud", "echo INFO fine; echo ERROR broken")
    settled(browser, {"Succeeded": 2})
    worst = lines(browser.get("/trainjobs/loud/logs?level=error&ranks=0"))
    assert [(line["text"], line["level"]) for line in worst] == [("ERROR broken", "error")]
    refused = browser.get("/trainjobs/talk/logs?ranks=7")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    assert browser.get("/trainjobs/talk/logs?regex=(").status_code == 400


@pytest.mark.thorough
@pytest.mark.security
def test_a_line_is_text_and_a_download_is_a_file(browser: Browser) -> None:
    browser.create("evil", "echo '<img src=x onerror=alert(1)>'")
    settled(browser, {"Succeeded": 1})
    line = lines(browser.get("/trainjobs/evil/logs?ranks=0"))[0]
    assert line["text"] == "<img src=x onerror=alert(1)>"
    file = browser.get("/trainjobs/evil/logs?format=text")
    assert file.headers["content-type"] == "text/plain; charset=utf-8"
    assert file.headers["content-disposition"] == 'attachment; filename="evil.log"'
    assert "[Rank-0] <img" in file.text


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_secrets_are_masked_in_every_answer(browser: Browser) -> None:
    canary = "canary-5f3d9a71c2"
    job = {
        "name": "quiet",
        "workers": 2,
        "command": ["sh", "-c", "echo $API_TOKEN"],
        "env": {"API_TOKEN": canary, "CONN": f"postgresql://bob:{canary}-address@db/x"},
    }
    answers = [browser.post("/plan", {"job": job}), browser.post("/trainjobs", {"job": job})]
    parts = ("", "/logs", "/logs?format=text", "/events", "/why")
    answers += [browser.get(f"/trainjobs/default/quiet{part}") for part in parts]
    assert [answer.status_code for answer in answers] == [200, 201, 200, 200, 200, 200, 200]
    assert [canary in answer.text for answer in answers] == [False] * 7


def test_what_is_not_there_is_said_with_the_next_step(browser: Browser) -> None:
    answer = browser.get("/trainjobs/default/none").json()
    assert answer["code"] == "NOT_FOUND"
    assert "none" in answer["message"]
    assert answer["docs"] == "docs/troubleshooting/not_found.md"


def test_the_place_says_what_it_has(browser: Browser) -> None:
    assert browser.get("/capabilities").json()["engine"] == "memory"
    assert "cores" in browser.get("/facts").json()["summary"]
    shown = {item["name"]: item for item in browser.get("/templates").json()["items"]}
    assert shown
    assert all(item["yaml"].startswith("name:") for item in shown.values() if item["origin"] == "library")


def test_an_error_that_is_a_bug_tells_no_details(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret path /home/maria")

    monkeypatch.setattr(browser.room.client, "facts", broken)
    answer = browser.get("/facts")
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert "maria" not in answer.text


def test_every_kind_of_error_has_a_status() -> None:
    from mpijob.errors import HTTP_STATUS as STATUS
    from mpijob.errors import Kind

    assert set(STATUS) == set(Kind)
    assert MpiJobError.kind in STATUS


@pytest.mark.thorough
def test_the_place_at_a_glance_says_who_waits_who_uses_it_and_what_fails(browser: Browser) -> None:
    for name in ("bad-one", "bad-two", "fine"):
        browser.create(name)
    settled(browser, {"Failed": 2, "Succeeded": 1})
    browser.create("large", labels=HANGS, workers=64, resources={"gpu": 1})
    browser.create("next", labels=HANGS, resources={"gpu": 8})
    told = browser.get("/overview").json()
    assert [(one["row"]["name"], one["position"]) for one in told["waiting"]] == [("next", 1)]
    assert [one["jobs"] for one in told["patterns"]] == [2]
    (mine,) = told["owners"]
    assert (mine["name"], mine["jobs"], mine["failed"]) == ("me", 5, 2)
    assert mine["busy_seconds"] > 0
    assert "cores" in told["room"]


@pytest.mark.req("FR-UI-006")
def test_every_answer_of_the_guide_leads_to_something_to_run(browser: Browser) -> None:
    told = browser.get("/guide").json()
    questions, kinds = told["questions"], told["kinds"]
    reached, todo = set(), [told["begin"]]
    while todo:
        at = todo.pop()
        reached.add(at)
        todo += [option["then"] for option in questions[at]["options"]] if at in questions else []
    assert reached == set(questions) | set(kinds)
    assert all(kind["snippet"] and kind["why"] and kind["link"] for kind in kinds.values())
    assert {"launcher", "worker", "rank", "slot", "queue"} <= set(told["glossary"])


@pytest.mark.req("SC-012")
def test_every_field_of_the_form_has_the_help_of_the_command_line(browser: Browser) -> None:
    told = browser.get("/fields").json()["items"]
    assert told["workers"]["text"] == "Number of workers."
    assert {
        "name",
        "command",
        "slots",
        "env",
        "resources.memory",
        "resources.gpu",
        "retry.limit",
        "code.path",
    } <= set(told)


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../b", "%2e%2e/x", "", "nothing", "a\x00b"]
)
def test_only_files_that_a_job_left_can_be_fetched(browser: Browser, path: str) -> None:
    browser.create("tidy")
    answer = browser.get("/trainjobs/default/tidy/artifact", params={"path": path})
    assert answer.status_code in (400, 404)
    assert answer.json()["message"]


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "path", ["/audit", "/trainjobs", "/accounts", "/accounts/report", "/trainjobs/default/a/logs"]
)
@pytest.mark.parametrize("word", ["since=inf", "since=-inf", "until=nan", "since=1e30", "until=-1e30"])
def test_a_time_that_no_calendar_has_is_refused_with_a_sentence(
    browser: Browser, path: str, word: str
) -> None:
    answer = browser.get(f"{path}?{word}")
    assert (answer.status_code, answer.json()["message"]) == (400, f"the query: {word} is not a time")
    assert "seconds since 1970" in answer.json()["hint"]


def test_an_overview_is_counted_beside_the_loop_that_serves_others(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = overview_rows.overview

    def watched(*args: Any, **options: Any) -> Any:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return count(*args, **options)

    monkeypatch.setattr(overview_rows, "overview", watched)
    assert browser.get("/overview").status_code == 200


@pytest.mark.thorough
@pytest.mark.req("D-api")
def test_the_document_in_the_repository_is_that_of_the_code() -> None:
    assert written.PLACE.read_text(encoding="utf-8") == written.text(), "run: python -m tools.openapi"


# -- the page's own files -------------------------------------------------------------------------
def test_the_page_is_served_packed_and_knows_its_own_places(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>page")
    (tmp_path / "assets" / "a-1.js").write_text("let a = 1;" * 100)
    with served(files=Files(tmp_path)) as visitor:
        for path in ("/", "/jobs/default/a/logs", "/create"):
            answer = visitor.http.get(path)
            assert (answer.text, answer.headers["content-type"]) == (
                "<!doctype html>page",
                "text/html; charset=utf-8",
            )
        script = visitor.http.get("/assets/a-1.js", headers={"accept-encoding": "gzip"})
        assert (script.headers["content-encoding"], script.text[:10]) == ("gzip", "let a = 1;")
        assert "immutable" in script.headers["cache-control"]
        assert visitor.http.get("/assets/a-2.js").status_code == 404


def test_a_checkout_without_the_built_page_says_how_to_build_it(tmp_path: Path) -> None:
    with served(files=Files(tmp_path)) as visitor:
        answer = visitor.http.get("/")
        assert (answer.status_code, "make ui" in answer.text) == (503, True)
