"""Every screen of the page and every state of it, over the jobs of `sample_jobs`: for pictures and for axe."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from playwright.sync_api import Page, expect

from .page_support import action

JOB = "/jobs/default"


def nothing(page: Page) -> None:
    """Leave the screen as it is."""


class State(NamedTuple):
    """A screen by its address, and what a user does there; some controls are only in wide windows."""

    name: str
    path: str
    act: Callable[[Page], None] = nothing
    least_width: int = 0


def press(name: str, *, role: str = "button", exact: bool = True) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_role(role, name=name, exact=exact).first.click()  # type: ignore[arg-type]

    return act


def opened(group: str) -> Callable[[Page], None]:
    """Open a section that is folded."""

    def act(page: Page) -> None:
        page.get_by_role("button", name=re.compile(f"^{re.escape(group)}")).first.click()

    return act


def chosen(menu: str, item: str) -> Callable[[Page], None]:
    return lambda page: action(page, item, menu)


def selected(page: Page) -> None:
    for name in ("resnet-a", "resnet-b"):
        page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()


def asked_to_delete(page: Page) -> None:
    selected(page)
    action(page, "Delete", "More bulk actions")
    expect(page.get_by_role("dialog")).to_be_visible()


def expanded(page: Page) -> None:
    press("Expand resnet-50")(page)
    expect(page.get_by_test_id("expanded").get_by_role("listitem").first).to_be_visible()


def navigation(page: Page) -> None:
    toggle = page.get_by_role("button", name="Navigation")
    if toggle.get_attribute("aria-expanded") == "false":
        toggle.click()


def refused(page: Page) -> None:
    page.locator("#field-name").fill("Not A Name")
    page.locator("#field-command").fill("'open")
    expect(page.get_by_test_id("problem")).to_be_visible()
    press("Help for Command")(page)


def too_large(page: Page) -> None:
    page.locator("#field-workers").fill("40")
    expect(page.get_by_test_id("fit")).to_contain_text(re.compile("Waiting|never|exceed", re.IGNORECASE))


def written(text: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("textbox", name="Job as YAML").fill(text)


def draft_left(page: Page) -> None:
    page.locator("#field-name").fill("begun")
    press("Cancel")(page)
    press("Create job")(page)
    expect(page.get_by_text("You have a draft")).to_be_visible()


def replaced(page: Page) -> None:
    page.locator("#field-name").fill("begun")
    press("Back")(page)
    press("Use template hello")(page)
    expect(page.get_by_role("dialog")).to_be_visible()


def every_group(page: Page) -> None:
    closed = page.locator("form .pf-v6-c-form__field-group-toggle button[aria-expanded=false]")
    for left in range(closed.count(), 0, -1):
        expect(closed).to_have_count(left)
        closed.first.click()


def found(page: Page) -> None:
    page.locator("#log-find").fill("loss=1")
    expect(page.get_by_text(re.compile("^1 / "))).to_be_visible()


def captured(page: Page) -> None:
    press("Capture stacks")(page)
    expect(page.get_by_role("list", name="Stacks by function")).to_be_visible()
    opened("Stack of rank")(page)


def kind_chosen(page: Page) -> None:
    press("PyTorch with torchrun or DistributedDataParallel")(page)


def disconnected(page: Page) -> None:
    page.route("**/api/v1/stream*", lambda route: route.abort())
    page.reload()
    expect(page.get_by_test_id("connection")).to_contain_text("Reconnecting")


def broken(page: Page) -> None:
    page.route("**/api/v1/overview", lambda route: route.fulfill(json={"facts": None}))
    page.goto(page.url.split("/jobs")[0] + "/queues")
    expect(page.get_by_text("This page has stopped working")).to_be_visible()


def signed_out(page: Page) -> None:
    page.route("**/api/v1/session", lambda route: route.fulfill(status=401, json=SIGNED_OUT))
    page.reload()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


SIGNED_OUT = {
    "code": "UNAUTHENTICATED",
    "message": "you are not signed in",
    "hint": "run: mpijob ui",
    "docs": "",
}
MANIFEST = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: old}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: launcher, image: "example.org/app:1", command: [mpirun, ./app]}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: worker, image: "example.org/app:1"}]}}
"""
SCRIPT = "#!/bin/bash\n#SBATCH -N 3 --ntasks-per-node=2\n#SBATCH -J moved\nsrun ./model --fast\n"
STATES = (
    State("list", "/jobs?namespace=all"),
    State("list-filtered", "/jobs?status=Failed&owner=priya&days=7"),
    State("list-custom-range", "/jobs?days=custom"),
    State("list-no-results", "/jobs?text=nothing-like-this"),
    State("list-empty", "/jobs?namespace=team-new"),
    State("list-row-menu", "/jobs", press("Actions for bert-16")),
    State("list-create-menu", "/jobs", press("More ways to create a job")),
    State("list-expanded", "/jobs", expanded, 768),
    State("list-selected", "/jobs", selected, 768),
    State("list-delete", "/jobs", asked_to_delete, 768),
    State("navigation", "/jobs", navigation),
    State("notifications", "/jobs", opened("Notifications")),
    State("help-menu", "/jobs", press("Help")),
    State("user-menu", "/jobs", opened("User menu")),
    State("shortcuts", "/jobs", chosen("Help", "Keyboard shortcuts")),
    State("command-line", "/jobs", chosen("Help", "Command line and Python")),
    State("about", "/jobs", chosen("Help", "About")),
    State("connection-lost", "/jobs", disconnected),
    State("page-broken", "/jobs", broken),
    State("signed-out", "/jobs", signed_out),
    State("compare", "/compare?job=default/resnet-a&job=default/resnet-b"),
    State("compare-three", "/compare?job=default/resnet-a&job=default/bert-16&job=default/typo&all=true"),
    State("create-start", "/create"),
    State("create-guide", "/create?step=start&help=true"),
    State("create-guide-other", "/create?step=start&help=true", kind_chosen),
    State("create-draft", "/create?step=workload", draft_left),
    State("create-replace", "/create?step=workload", replaced),
    State("create-workload", "/create?step=workload"),
    State("create-refused", "/create?step=workload", refused),
    State("create-clone", "/create?from=default/bert-16&fix=1&step=workload"),
    State("create-resources", "/create?from=default/bert-16&fix=1&step=resources"),
    State("create-too-large", "/create?from=default/bert-16&step=resources", too_large),
    State("create-options", "/create?from=default/bert-16&step=options"),
    State("create-options-open", "/create?from=default/bert-16&step=options", every_group),
    State("create-review", "/create?from=default/bert-16&fix=1&step=review"),
    State("create-template", "/create?template=hello"),
    State("create-split", "/create?from=default/bert-16&fix=1&view=split&step=resources"),
    State("create-yaml", "/create?from=default/bert-16&view=yaml"),
    State("create-script", "/create?view=yaml", written(SCRIPT)),
    State("create-manifest", "/create?view=yaml", written(MANIFEST)),
    State("failed", f"{JOB}/bert-16"),
    State("failed-checks", f"{JOB}/bert-16", opened("Timeline and checks")),
    State("failed-fix", f"{JOB}/bert-16", press("Fix and rerun")),
    State("failed-other", f"{JOB}/typo"),
    State("job-menu", f"{JOB}/bert-16", press("Actions")),
    State("succeeded", f"{JOB}/resnet-a"),
    State("running", f"{JOB}/resnet-50"),
    State("running-stop", f"{JOB}/resnet-50", press("Stop")),
    State("not-responding", f"{JOB}/stuck"),
    State("queued", f"{JOB}/llm-ft"),
    State("queued-second", f"{JOB}/evaluate"),
    State("suspended", f"{JOB}/sweep-7"),
    State("stopped", f"{JOB}/old-run"),
    State("steps", f"{JOB}/simulate"),
    State("runs", f"{JOB}/tuned"),
    State("job-not-found", f"{JOB}/nothing"),
    State("configuration", f"{JOB}/bert-16/configuration"),
    State("configuration-changed", f"{JOB}/tuned/configuration"),
    State("configuration-yaml", f"{JOB}/bert-16/configuration?format=yaml"),
    State("configuration-slurm", f"{JOB}/bert-16/configuration?format=sbatch"),
    State("workers", f"{JOB}/bert-16/workers"),
    State("workers-status", f"{JOB}/bert-16/workers?by=status", opened("Details")),
    State("worker-panel", f"{JOB}/bert-16/workers?worker=2"),
    State("launcher-panel", f"{JOB}/bert-16/workers?worker=launcher"),
    State("workers-running", f"{JOB}/resnet-50/workers"),
    State("workers-elastic", f"{JOB}/grows/workers"),
    State("workers-communication", f"{JOB}/halo-exchange/workers"),
    State("workers-stacks", f"{JOB}/stuck/workers?stacks=true", captured),
    State("workers-queued", f"{JOB}/llm-ft/workers"),
    State("logs", f"{JOB}/resnet-a/logs"),
    State("logs-find", f"{JOB}/resnet-a/logs", found),
    State("logs-filtered", f"{JOB}/resnet-a/logs?ranks=1&level=warning&wrap=true"),
    State("logs-none", f"{JOB}/resnet-a/logs?level=error"),
    State("logs-empty", f"{JOB}/llm-ft/logs"),
    State("logs-options", f"{JOB}/resnet-50/logs", press("View options")),
    State("logs-full-screen", f"{JOB}/resnet-50/logs", chosen("View options", "Full window")),
    State("metrics", f"{JOB}/resnet-a/metrics"),
    State("metrics-running", f"{JOB}/resnet-50/metrics?usage=workers"),
    State("metrics-heat", f"{JOB}/resnet-50/metrics?usage=heat"),
    State("metrics-none", f"{JOB}/llm-ft/metrics"),
    State("events", f"{JOB}/bert-16/events"),
    State("events-none", f"{JOB}/hello/events?warnings=true"),
    State("files", f"{JOB}/resnet-a/files"),
    State("files-none", f"{JOB}/llm-ft/files"),
    State("queues", "/queues"),
    State("usage", "/queues?tab=usage"),
    State("admin", "/admin"),
    State("admin-failures", "/admin?tab=failures"),
    State("admin-audit", "/admin?tab=audit"),
    State("admin-feedback", "/admin?tab=feedback"),
    State("learn", "/learn"),
    State("learn-job-types", "/learn/job-types"),
    State("learn-glossary", "/learn/glossary"),
    State("learn-fields", "/learn/fields"),
    State("page-not-found", "/nowhere"),
)  # fmt: skip
