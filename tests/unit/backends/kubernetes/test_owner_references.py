"""Whose a job's companions are: written behind the caller's back, mended by who follows, swept by who deletes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.kubernetes.test_submit import SERVED, a_plan
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.submit import create_objects, owner_references
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import JobRef, Secret

RUNTIME = resources.TRAINING_RUNTIME.path("cv", "bert")


def forbidden(method: str, path: str) -> None:
    if method == "PATCH":
        raise ApiError("no", status=403)


def a_stray(age_seconds: float = 60) -> tuple[Store, dict[str, Any]]:
    """Return a cluster where the creator of a job was stopped before the job owned its runtime."""
    api = Store()
    api.before = forbidden
    made = create_objects.submit(api, a_plan())
    made.owned()
    api.before = lambda method, path: None
    stamp = (datetime.now(UTC) - timedelta(seconds=age_seconds)).isoformat()
    api.objects[RUNTIME]["metadata"]["creationTimestamp"] = stamp
    return api, made.job


def owners(api: Store) -> list[str]:
    return [one["uid"] for one in api.objects[RUNTIME]["metadata"].get("ownerReferences") or ()]


def test_a_job_is_created_before_it_owns_what_was_made_for_it() -> None:
    api, patched = Store(), threading.Event()

    def busy(method: str, path: str) -> None:
        if method == "PATCH":
            assert patched.wait(10)

    api.before = busy
    made = create_objects.submit(api, a_plan())
    assert (api.names("trainjobs"), owners(api)) == (["bert"], [])
    patched.set()
    made.owned()
    assert owners(api) == [made.job["metadata"]["uid"]]


def test_a_job_whose_runtime_cannot_be_changed_runs_all_the_same() -> None:
    api, _ = a_stray()
    assert (api.names("trainjobs"), owners(api)) == (["bert"], [])


def test_who_follows_a_job_gives_it_its_runtime_where_nobody_did() -> None:
    api, job = a_stray()
    owner_references.mend(api, job, api.objects[RUNTIME])
    assert owners(api) == [job["metadata"]["uid"]]
    asked = len(api.asked)
    owner_references.mend(api, job, api.objects[RUNTIME])
    owner_references.mend(api, job, None)
    assert len(api.asked) == asked


def test_what_is_being_created_or_is_not_the_jobs_is_left_alone() -> None:
    api, job = a_stray(age_seconds=1)
    owner_references.mend(api, job, api.objects[RUNTIME])
    old, job = a_stray()
    old.objects[RUNTIME]["metadata"]["labels"][well_known.UID_LABEL] = "another"
    owner_references.mend(old, job, old.objects[RUNTIME])
    assert (owners(api), owners(old)) == ([], [])


@pytest.mark.parametrize("strays", [True, False])
def test_who_deletes_a_job_deletes_what_has_no_owner(monkeypatch: pytest.MonkeyPatch, strays: bool) -> None:
    monkeypatch.setenv("TOKEN", "x")
    api = Store()
    if strays:
        api.before = forbidden
    create_objects.submit(api, a_plan(secrets=(Secret(env="KEY", source="env:TOKEN"),))).owned()
    api.before = lambda method, path: None
    found = job_objects.find(api, JobRef("cv", "bert"), lambda: SERVED)
    patches.delete(api, found, [found.job])
    left = [] if strays else ["bert"]  # what has an owner follows it, in a real cluster
    assert api.names("trainingruntimes") == left
    (secret,) = (one for path, one in api.objects.items() if "/secrets/" in path)
    owner = "TrainingRuntime" if strays else "TrainJob"
    assert [one["kind"] for one in secret["metadata"]["ownerReferences"]] == [owner]


def test_what_may_not_be_looked_at_does_not_hold_up_a_deletion() -> None:
    api, _ = a_stray()

    def no_secrets(method: str, path: str) -> None:
        if "/secrets" in path:
            raise ApiError("no", status=403)

    found = job_objects.find(api, JobRef("cv", "bert"), lambda: SERVED)
    api.before = no_secrets
    patches.delete(api, found, [found.job])
    assert api.names("trainingruntimes") == []


@pytest.mark.thorough
def test_the_command_line_ends_after_what_it_began_behind_the_users_back(tmp_path: Path) -> None:
    source = (
        "import sys; from mpijob.backends.kubernetes.client import concurrent; "
        "from mpijob.cli.main import main; "
        "done = sys.argv.pop(); "
        "concurrent.later(lambda: (sys.stdin.read(), open(done, 'w').close()), lasting=True); main()"
    )
    done = tmp_path / "done"
    child = subprocess.Popen(
        [sys.executable, "-c", source, "version", str(done)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().startswith("mpijob ")  # the user waits for nothing
    assert child.poll() is None
    child.communicate("", timeout=30)
    assert (child.returncode, done.exists()) == (0, True)
