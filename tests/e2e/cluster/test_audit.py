"""Who did what, by our own entries and by the API server's log: the same acts, the same users, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import control_plane
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotAllowed
from mpijob.model import Secret
from mpijob.model.status.audit import AuditQuery

ROOT = Path(__file__).parents[3]
SIZE = "mpijob-audit-trainjobs/workers"
CANARY = "canary-c1u5t3r"
pytestmark = pytest.mark.req("FR-026", "FR-SEC-001", "FR-SEC-002", "FR-SEC-003", "C-audit")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "audited") as place:
        subprocess.run(
            [
                "kubectl",
                f"--kubeconfig={kubeconfig}",
                "apply",
                "--server-side",
                "-k",
                ROOT / "deploy/base/audit",
            ],
            check=True,
            capture_output=True,
        )
        eventually(lambda: noted(place), "the policy that adds a job's size to the audit", PATIENCE)
        yield place


def noted(place: Place) -> bool:
    """Whether the server's audit tells the size of a job: it takes a while until a new policy is obeyed."""
    place.client.plan(a_job("asked", workers=1), server=True)
    return any(SIZE in one.get("annotations", {}) for one in server_log(place.namespace))


def server_log(namespace: str) -> list[dict[str, Any]]:
    """Return what the API server's audit tells of a namespace."""
    log = control_plane.audit_log()
    if not log.exists():
        pytest.fail("the API server keeps no audit: start the test bed anew (make cluster-down cluster)")
    with log.open() as file:
        lines = [json.loads(line) for line in file if f'"{namespace}"' in line]
    return [line for line in lines if (line.get("objectRef") or {}).get("namespace") == namespace]


def acts(namespace: str) -> set[tuple[str, str, str]]:
    found = server_log(namespace)
    return {
        (
            one["verb"],
            "/".join(filter(None, (ref["resource"], ref.get("subresource")))),
            one["user"]["username"],
        )
        for one in found
        if (ref := one["objectRef"])
    }


def test_a_jobs_life_is_told_by_us_and_by_the_server_with_the_same_user(place: Place) -> None:
    me = place.client.backend
    name = f"told-{os.urandom(3).hex()}"  # the records of a first try stay
    job = place.client.submit(a_job(name, "echo hello; sleep 600", workers=1))
    job.wait(PATIENCE, {Phase.RUNNING})
    assert next(iter(job.logs(ranks=(0,), follow=True))).text == b"hello"  # one look, until there is a line
    job.cancel()
    job.delete()
    told = place.client.audit(AuditQuery(jobs=(name,)))
    assert [event.verb for event in told] == ["create", "logs", "cancel", "delete"]
    (user,) = {event.user.username for event in told}
    assert user not in ("", me.name)
    assert told[0].note("image") == place.settings.image
    assert place.client.verify_audit().sound
    wanted = {("create", "trainjobs", user), ("delete", "trainjobs", user), ("get", "pods/log", user)}
    eventually(lambda: wanted <= acts(place.namespace), "the acts in the API server's log")
    (created,) = (
        one for one in server_log(place.namespace)
        if (one["verb"], one["objectRef"]["resource"], one["objectRef"].get("name")) == ("create", "trainjobs", name)
        and one["responseStatus"]["code"] == 201  # one that the server could not answer yet is made again
    )  # fmt: skip
    assert created["annotations"][SIZE] == "1"
    assert "requestObject" not in created


def test_who_cancelled_is_noted_on_the_job_itself(place: Place) -> None:
    job = place.client.submit(a_job("noted", "sleep 600", workers=1))
    job.wait(PATIENCE, {Phase.RUNNING})
    job.cancel()
    who = place.client.audit(AuditQuery(jobs=("noted",), verbs=("cancel",)))[0].user.username
    assert f"cancelled by {who}" in [event.message for event in job.events()]
    job.delete()


def test_what_the_cluster_refuses_is_in_the_refused_ones_audit(
    place: Place, kubeconfig_of: Callable[[str], Path], tmp_path: Path
) -> None:
    bob = Place(kubeconfig_of("bob"), "team-a", str(tmp_path))
    with pytest.raises(NotAllowed):
        bob.client.submit(a_job("stolen", "true", workers=1).replace(namespace="team-a"))
    (refused,) = bob.client.audit()
    assert refused.user.username == "bob"
    assert refused.response_status is not None
    assert (refused.response_status.code, refused.response_status.reason) == (403, "NOT_ALLOWED")


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_planted_secrets_are_in_no_output_of_a_clusters_job(place: Place, tmp_path: Path) -> None:
    place.put(resources.SECRET, "planted", stringData={"key": f"{CANARY}-secret"})
    script = 'echo "$API_TOKEN $WANDB"; exit 3'
    job = place.client.submit(
        a_job("leaky", script, workers=1, env={"API_TOKEN": f"{CANARY}-env"},
                  secrets=(Secret(env="WANDB", source="planted/key"),))
    )  # fmt: skip
    assert job.wait(PATIENCE).phase is Phase.FAILED
    shown = {}
    commands = ("describe", "why", "events", "logs", "export")
    for words in (
        *((verb, "leaky") for verb in commands),
        ("get", "leaky", "-o", "json"),
        ("audit", "-o", "json"),
    ):
        done = place.mpijob(*words)
        assert done.returncode == 0, done.stderr
        shown[words] = done.stdout + done.stderr
    made = job.bundle(tmp_path / "bundle.tar")
    shown["bundle",] = subprocess.run(["tar", "-xOf", made.path], capture_output=True, text=True).stdout
    shown["server",] = control_plane.audit_log().read_text()
    events = place.kubectl("get", "events", "-o", "json")
    shown["kubernetes events",] = events
    job.delete()
    assert "***" in shown["logs", "leaky"]
    assert {words for words, output in shown.items() if CANARY in output} == set()
