"""Every operation exists in every face: the client's methods, the commands, the routes and the page's calls, one table.

The table says which words belong together; the four faces are read from the code. A new method, command or route that
is in no row fails, and so does a row that names what is not there. What one face lacks has a reason beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mpijob import Client, Job
from mpijob.api.routes import ROUTES
from mpijob.cli.command_table import ENTRIES

SOURCE = Path(__file__).parents[3] / "frontend" / "src"
ONE = "/trainjobs/{namespace}/{name}"


class Row(NamedTuple):
    """One operation: its name in each face. Methods, commands, routes (`GET /path`); the page calls one of the routes.

    Where a face has none, it holds a reason instead, which begins with "-".
    """

    sdk: str
    cli: str
    rest: str
    page: str = ""  # as rest, unless it is said otherwise


TERMINAL = "- it takes a terminal over; a page that ran commands in workers would be a way in for whoever holds a tab"
HERE = "- it writes on the machine where it runs, which is the server's and not the visitor's"
AFTER = "- who keeps the record or the audit does it, at the machine that has it"
LOOKS = (
    "- a command beside a job that is being looked into; the page shows what it finds as events and causes"
)
CONTEXTS = "- a server has one context; who moves a job has the rights of two"
CODE = "- how a program puts jobs together; each of them is created as any other"

OPERATIONS: dict[str, Row] = {
    "create": Row("submit create_mpi_job run", "create run alloc", "POST /trainjobs"),
    "plan": Row("plan", "plan", "POST /plan"),
    "fit": Row("fit estimate", "quota", "POST /fit"),
    "facts": Row("facts", "quota", "GET /facts GET /overview"),
    "list": Row("list jobs list_jobs", "list", "GET /trainjobs"),
    "get": Row("get get_job state get_job_status spec", "get describe", f"GET {ONE}"),
    "watch": Row("watch stream_job_events", "watch", "GET /stream"),
    "wait": Row("wait wait_for_completion wait_for_job_status", "wait", "GET /stream"),
    "logs": Row("logs get_job_logs download_logs", "logs", f"GET {ONE}/logs"),
    "events": Row("events get_job_events warnings", "events", f"GET {ONE}/events"),
    "metrics": Row("metrics", "top", f"GET {ONE}/metrics"),
    "curves": Row("curves points", "curves", f"GET {ONE}/curves GET /progress"),
    "scalars": Row("scalars", "curves", f"GET {ONE}/scalars"),
    "nodes": Row(
        "nodes", "- describe names the nodes of workers; kubectl get nodes shows labels", f"GET {ONE}/nodes"
    ),
    "links": Row("links", "describe", f"GET {ONE}/links"),
    "why": Row("why diagnose", "why", f"GET {ONE}/why"),
    "patterns": Row("patterns", "patterns", "GET /patterns"),
    "artifacts": Row("artifacts fetch", "artifacts", f"GET {ONE}/artifacts GET {ONE}/artifact"),
    "store": Row("store", "artifacts data", HERE, HERE),
    "deleted": Row("deleted remembered twin record", "list", f"GET {ONE}/attempts", f"GET {ONE}/runs"),
    "runs": Row("runs attempts", "runs", f"GET {ONE}/runs"),
    "cancel": Row("cancel cancel_all", "cancel", f"POST {ONE}/cancel POST /bulk"),
    "suspend": Row("suspend", "suspend", f"POST {ONE}/suspend POST /bulk"),
    "resume": Row("resume", "resume", f"POST {ONE}/resume POST /bulk"),
    "retry": Row("retry", "retry", f"POST {ONE}/retry POST /bulk"),
    "delete": Row("delete delete_all delete_job", "delete", f"DELETE {ONE} POST /bulk"),
    "clone": Row(
        "clone", "clone", f"POST {ONE}/clone", f"GET {ONE}/export"
    ),  # the wizard changes the copy first
    "scale": Row("scale", "scale", f"POST {ONE}/scale"),
    "reconcile": Row("reconciling", "run controller", "- the cluster's controller does it", "- as REST"),
    "export": Row("export", "export", f"GET {ONE}/export"),
    "compare": Row("compare", "compare", "GET /compare"),
    "move": Row(
        "- mpijob.client.contexts.Contexts, which has a client for each context", "move", CONTEXTS, CONTEXTS
    ),
    "templates": Row("templates", "template", "GET /templates POST /templates DELETE /templates/{template}"),
    "convert": Row(
        "- mpijob.client.convert.convert_jobs, which needs no client", "convert", "POST /drafts/convert"
    ),
    "advise": Row("advise", "plan", "POST /drafts/advice"),
    "accounts": Row(
        "accounts attempt_accounts usage_report rates",
        "acct",
        f"GET /accounts GET /accounts/report GET {ONE}/account",
    ),
    "budgets": Row("budgets", "acct", "GET /budgets"),
    "audit": Row("audit", "audit", "GET /audit"),
    "queues": Row("wait_accuracy", "queue", "GET /queues GET /queues/accuracy", "GET /queues"),
    "rights": Row("- client.facts(job).may", "doctor", "GET /rights"),
    "choices": Row("- names are known to whoever writes code", "explain", "GET /choices"),
    "explain": Row(
        "- mpijob.formats.jobfile.json_schema, which needs no client",
        "explain schema",
        "GET /fields GET /guide",
    ),
    "cluster": Row("- mpijob.client.admin.limits.Administration", "admin", "GET /overview/cluster"),
    "migration": Row("- mpijob.client.convert.cluster_migration", "convert", "GET /migration"),
    "many": Row("array submit_all", "array create", CODE, CODE),
    "recurring": Row(
        "schedules", "schedule", "- a clock needs a home; it is set where the clock is", "-  as REST"
    ),
    "stacks": Row("stacks", "stacks", f"POST {ONE}/stacks"),
    "profile": Row("profile", "profile", f"GET {ONE}/profile", "- the page's next version shows it"),
    "network": Row("- a command over the client's jobs", "network", LOOKS, LOOKS),
    "execute": Row("execute", "exec", TERMINAL, TERMINAL),
    "bundle": Row("bundle", "bundle", f"GET {ONE}/bundle"),
    "register": Row(
        "register", "register", "- a job registers its model itself: the field `model`", "- as REST"
    ),
    "verify the audit": Row("verify_audit", "audit", AFTER, AFTER),
    "erase a user": Row("erase_user", "record", AFTER, AFTER),
    "back the record up": Row("backup_record restore_record", "record", AFTER, AFTER),
}
NOT_OPERATIONS = {  # what methods of the client are for that ask nothing of an engine
    "close", "fetch_file", "localized", "masked_values", "ref", "scope", "whoami",
    "name", "namespace", "phase", "result", "then", "widget",
}  # fmt: skip
OTHER_COMMANDS = {
    "services that run beside a cluster": "recorder controller webhook operator broker notifier exporter",
    "about this installation": "ui doctor mpi completion version",
    "beside other tools": "mlflow tensorboard trace image runtimes rules",
}
OTHER_ROUTES = {
    "a visitor's session": "GET /session POST /session DELETE /session POST /session/links",
    "about the server": "GET /health GET /capabilities GET /openapi.json GET /opinions POST /opinions",
    "a form's text": "POST /drafts POST /drafts/edit",
}


def words(text: str) -> list[str]:
    return [] if text.startswith("-") else text.split()


def routes(text: str) -> list[str]:
    found = words(text)
    return [" ".join(pair) for pair in zip(found[::2], found[1::2], strict=True)]


SDK = {name for kind in (Client, Job) for name in dir(kind) if not name.startswith("_")}
CLI = set(ENTRIES)
REST = {f"{route.method} {route.path}" for route in ROUTES if not route.path.startswith("/trainjobs/{name}")}


def called_by_the_page() -> set[str]:
    """The addresses that occur in the page's source, with the braces of the document."""
    found = set()
    for path in SOURCE.rglob("*.ts*"):
        if path.name != "schema.ts":
            text = re.sub(r"\$\{(?:row\.)?(namespace|name)\}", r"{\1}", path.read_text(encoding="utf-8"))
            found |= {one.rstrip("/") for one in re.findall(r"[\"`]/api/v1(/[a-z/{}.]+)", text)}
            found |= {f"{ONE}/{part}" for part in re.findall(r'jobUrl\(row, "([a-z]+)"', text)}
    return found


PAGE = called_by_the_page()


def no_reason(text: str) -> bool:
    return text.startswith("-") and len(text) < 8


@pytest.mark.req("AC10", "FR-002")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_in_every_face_or_says_why_not(operation: str) -> None:
    row = OPERATIONS[operation]
    assert set(words(row.sdk)) <= SDK
    assert set(words(row.cli)) <= CLI
    assert row.cli  # the command line has everything
    assert set(routes(row.rest)) <= REST
    page = row.page or row.rest
    asked = {one.partition(" ")[2] for one in routes(page)}
    assert asked & PAGE or page.startswith("-")
    assert not any(no_reason(face) for face in row)


@pytest.mark.req("AC10")
def test_no_method_command_or_route_is_in_no_row() -> None:
    methods = [name for row in OPERATIONS.values() for name in words(row.sdk)]
    commands = [name for row in OPERATIONS.values() for name in words(row.cli)]
    asked = [name for row in OPERATIONS.values() for name in routes(row.rest)]
    assert SDK - set(methods) - NOT_OPERATIONS == set()
    assert CLI - set(commands) - {one for told in OTHER_COMMANDS.values() for one in told.split()} == set()
    assert REST - set(asked) - {one for told in OTHER_ROUTES.values() for one in routes(told)} == set()


@pytest.mark.req("AC10")
def test_the_page_asks_for_nothing_that_the_server_does_not_have() -> None:
    assert {one for one in PAGE if not any(route.endswith(f" {one}") for route in REST)} == set()
