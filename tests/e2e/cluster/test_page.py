"""The page over a cluster: it acts as the user whose kubeconfig it has, and shows what that user may see."""

from __future__ import annotations

import json
import os
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.support import eventually, image
from tests.visitor import Page, opened

pytestmark = pytest.mark.testbed  # alice and bob are users of the test bed

JOB = {
    "name": "from-the-page",
    "workers": 2,
    "command": ["sh", "-c", "echo hello from $OMPI_COMM_WORLD_RANK"],
    "resources": {"cpu": "100m", "memory": "64Mi"},
}


@contextmanager
def page_of(kubeconfig: Path, work: Path) -> Iterator[Page]:
    mine = {"KUBECONFIG": str(kubeconfig), "MPIJOB_ENGINE": "kubernetes", "MPIJOB_IMAGE": image("openmpi4"),
            "MPIJOB_HOME": str(work / "home")}  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MPIJOB_")}
    with opened(kept | mine, work) as page:
        page.sign_in()
        yield page


def refused(page: Page, method: str, path: str, body: Any = None) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        page.ask(method, path, body)
    told = json.load(caught.value)
    assert told["message"]
    return caught.value.code


@pytest.mark.security
@pytest.mark.req("FR-INT-005", "B-story5")
def test_two_users_see_and_do_what_is_theirs(kubeconfig_of: Callable[[str], Path], tmp_path: Path) -> None:
    with ExitStack() as stack:
        alice = stack.enter_context(page_of(kubeconfig_of("alice"), tmp_path))
        bob = stack.enter_context(page_of(kubeconfig_of("bob"), tmp_path))
        assert alice.json("GET", "/capabilities")["namespace"] == "team-a"
        assert alice.json("POST", "/plan", {"job": JOB})["plan"]["world"] == 2
        alice.json("POST", "/trainjobs", {"job": JOB})
        try:
            said = alice.ask("GET", "/trainjobs/team-a/from-the-page/logs?follow=true").read().decode()
            lines = [line["text"] for batch in said.splitlines() for line in json.loads(batch)["lines"]]
            assert {"hello from 0", "hello from 1"} <= set(lines)
            eventually(lambda: alice.phase("from-the-page") == "Succeeded", "alice's list shows the end", 60)
            assert bob.phase("from-the-page") == ""
            for path in ("", "/logs", "/events", "/why"):
                assert refused(bob, "GET", f"/trainjobs/team-a/from-the-page{path}") in (403, 404)
            assert refused(bob, "DELETE", "/trainjobs/team-a/from-the-page") in (403, 404)
            assert refused(bob, "POST", "/trainjobs", {"job": {**JOB, "namespace": "team-a"}}) == 403
        finally:
            alice.ask("DELETE", "/trainjobs/team-a/from-the-page")
        eventually(lambda: alice.phase("from-the-page") == "", "it is gone from the list", 60)
