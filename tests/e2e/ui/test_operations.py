"""Operations that one does now and then in the page: scaling, templates, conversion, an eye on quotas."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, Route, expect
from tests.e2e.ui.test_access import violations

from mpijob import Client, MPIJob
from mpijob.admission import alerts
from mpijob.model import Elastic, Resources
from mpijob.model.status.overview import ClusterView, Line, NamespaceView

from .page_support import action

SMALL = Resources(cpu="250m", memory="64Mi")
SCRIPT = "#!/bin/bash\n#SBATCH -N 3 --ntasks-per-node=2\n#SBATCH -J moved\nsrun ./model --fast\n"


@pytest.mark.req("AC10", "PMV-001", "D-migrate")
def test_a_script_is_converted_and_kept_as_a_template_and_removed_again(page: Page, client: Client) -> None:
    base = page.url.split("/jobs")[0]
    page.goto(f"{base}/create?view=yaml")
    editor = page.get_by_role("textbox", name="Job as YAML")
    editor.fill(SCRIPT)
    convert = page.get_by_role("button", name="Convert", exact=True)
    expect(convert).to_be_visible()
    assert violations(page) == []
    convert.click()
    expect(editor).to_contain_text("workers: 3")
    page.get_by_role("button", name="Form", exact=True).click()
    page.get_by_role("navigation", name="Steps").get_by_role("button", name="Review").click()
    page.locator("#template-name").fill("ours")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Template ours saved")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Couldn't save the template")).to_be_visible()  # it is there already
    assert violations(page) == []
    page.goto(f"{base}/create?template=ours&step=resources")
    expect(page.locator("#field-workers")).to_have_value("3")
    page.goto(f"{base}/create?step=start")
    ours = page.locator("[data-template=ours]")
    expect(ours).to_contain_text("Mine · 3 workers")
    action(page, "Delete template", "Actions for template ours")
    expect(ours).to_have_count(0)
    assert "ours" not in [one.name for one in client.templates.list()]


@pytest.mark.req("AC10", "R8")
def test_an_elastic_job_is_scaled_and_a_refusal_is_told(page: Page, client: Client) -> None:
    job = MPIJob(
        name="grows", workers=2, resources=SMALL, command=("sleep", "60"), grace_seconds=1.0,
        elastic=Elastic(min_workers=1, max_workers=4),
    )  # fmt: skip
    client.submit(job)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/grows/workers")
    asked = page.get_by_test_id("scale")
    asked.get_by_role("spinbutton", name="Workers, from 1 to 4").fill("3")
    with page.expect_request("**/scale*") as sent:
        asked.get_by_role("button", name="Scale").click()
    assert sent.value.post_data_json == {"workers": 3}
    expect(asked).to_contain_text("Couldn't scale the job")  # one machine does not scale, and says so
    expect(asked).to_contain_text("mpijob clone grows --workers 3")
    assert violations(page) == []


HANGS = """
import os, time
print("begun", flush=True)
def waits_for_a_lock():
    time.sleep(600)
def reads_data():
    time.sleep(600)
(waits_for_a_lock if os.environ["MPIJOB_RANK"] == "1" else reads_data)()
"""


@pytest.mark.req("AC10", "PMV-012")
def test_a_job_that_hangs_is_looked_into_and_its_bundle_taken_along(
    page: Page, client: Client, tmp_path: Path
) -> None:
    program = (sys.executable, "-c", HANGS)
    job = client.submit(MPIJob(name="hangs", workers=2, resources=SMALL, command=program, grace_seconds=1.0))
    next(iter(job.logs(follow=True)))
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/hangs/workers")
    page.get_by_role("button", name="Capture stacks").click()
    found = page.get_by_role("list", name="Stacks by function")
    expect(found).to_contain_text("1 rank (1) in waits_for_a_lock")
    expect(found).to_contain_text("1 rank (0) in reads_data")
    found.get_by_role("button", name="Stack of rank 1").click()
    expect(found.get_by_role("listitem").filter(has_text="<module>").first).to_be_visible()
    assert violations(page) == []
    with page.expect_download() as taken:
        action(page, "Download support bundle")
    assert taken.value.suggested_filename == "hangs-bundle.tar.gz"
    taken.value.save_as(tmp_path / "bundle.tar.gz")
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        assert [name for name in bundle.getnames() if name.endswith("state.json")]
    job.cancel()


@pytest.mark.req("B-admin", "US3")
def test_a_quota_that_is_nearly_consumed_is_a_warning_for_administrators(page: Page) -> None:
    """The cluster's numbers are laid in; the sentences are the server's own, and tests/e2e/cluster asks a real one."""
    teams = [
        NamespaceView(
            name=name, lines=(Line(source="ResourceQuota mpijob", resource="gpu", used=used, most=10),)
        )
        for name, used in (("nlp-team", 9.0), ("cv-team", 10.0), ("small-team", 8.0))
    ]
    told = ClusterView(namespaces=tuple(teams), alerts=alerts.alerts(teams), gpus=32, gpus_held=27)

    def as_cluster(route: Route) -> None:
        answer: dict[str, Any] = route.fetch().json()
        route.fulfill(json=answer | {"cluster": True})

    page.route("**/api/v1/capabilities", as_cluster)
    page.route(
        "**/api/v1/overview/cluster", lambda route: route.fulfill(json=json.loads(msgspec.json.encode(told)))
    )
    page.goto(page.url.split("/jobs")[0] + "/admin")
    warning = page.locator(".pf-v6-c-alert", has_text="nlp-team quota 90% consumed: 9 of 10")
    expect(warning).to_contain_text("Warning alert")
    expect(page.locator(".pf-v6-c-alert", has_text="cv-team quota 100% consumed")).to_contain_text(
        "Danger alert"
    )
    expect(page.locator(".pf-v6-c-alert", has_text="small-team")).to_have_count(0)
    expect(page.get_by_role("grid", name="Projects")).to_contain_text("80% of gpu")
    assert violations(page) == []
