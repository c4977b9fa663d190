"""Code that no config map holds alone: in parts, joined in every pod, and gone with the job."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place, said
from tests.e2e.cluster.test_workloads import EVERY, of_family

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import InvalidJob
from mpijob.model import Code, Retry, Role

SIZE = 5 << 20


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "parts") as place:
        yield place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "data.bin").write_bytes(os.urandom(SIZE))
    (folder / "look.sh").write_text("sha256sum data.bin | cut -d' ' -f1\n")
    return folder


def parts(place: Place, name: str) -> list[str]:
    found = place.api.list(resources.CONFIG_MAP.path(place.namespace)).items
    names = [one["metadata"]["name"] for one in found]
    return [one for one in names if one.startswith(f"{name}-mpijob-code")]


@pytest.mark.req("FR-008")
@pytest.mark.parametrize("family", EVERY)
def test_every_rank_gets_large_code_whole(place: Place, folder: Path, family: str) -> None:
    name = f"large-{family}"
    job = a_job(name, command=("sh", "look.sh"), code=Code(path=str(folder)))
    handle = place.succeeded(of_family(family, job))
    sent = hashlib.sha256((folder / "data.bin").read_bytes()).hexdigest()
    assert said(handle) == {0: [sent], 1: [sent]}
    assert len(parts(place, name)) == 8
    handle.delete(grace_period=0)
    eventually(lambda: not parts(place, name), "no part is left")


@pytest.mark.req("FR-008")
def test_the_parts_serve_the_next_attempt(place: Place, folder: Path) -> None:
    script = 'sh look.sh; [ "$MPIJOB_ATTEMPT" = 2 ]'
    retry = Retry(limit=1, backoff_seconds=1.0)
    job = place.client.submit(a_job("again", script, code=Code(path=str(folder)), retry=retry))
    with place.client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    lines = {(line.attempt, line.text.decode()) for line in job.logs(roles=[Role.RANK])}
    job.delete(grace_period=0)
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
    sent = hashlib.sha256((folder / "data.bin").read_bytes()).hexdigest()
    assert lines == {(1, sent), (2, sent)}


def test_too_large_code_is_refused_by_the_plan(place: Place, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(os.urandom(9 << 20))
    with pytest.raises(InvalidJob, match="a cluster accepts at most 8"):
        place.client.plan(a_job("huge", code=Code(path=str(tmp_path))))
