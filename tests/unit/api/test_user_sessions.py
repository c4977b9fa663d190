"""What the page's server hands to others: nothing made with its own identity, nothing of its own files."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.unit.api_support import Browser, served
from tests.unit.kube_store import Store

from mpijob import AsyncClient, Client, MPIJob
from mpijob.backends import secrets as sources
from mpijob.backends.capabilities import SupportsDoctor
from mpijob.backends.kubernetes.admin import versions
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.logs import secret_values
from mpijob.backends.memory import MemoryBackend
from mpijob.client.admin import doctor
from mpijob.errors import BackendError, Finding, NotFound
from mpijob.model import Artifact, JobRef, Secret
from mpijob.settings import Settings

pytestmark = pytest.mark.security

ANN = Access(server="https://127.0.0.1:1", token="ann-token", context="cluster")
AT_A_CLUSTER = Settings(home="/nowhere", engine="kubernetes")


# -- doctor.json ------------------------------------------------------------------------------------
class Examined(MemoryBackend, SupportsDoctor):
    """An engine that looks at the cluster as its user."""

    def doctor(self) -> tuple[Finding, ...]:
        return (Finding("DOCTOR_FINE", "seen as ann"),)


class Silent(MemoryBackend, SupportsDoctor):
    """One whose cluster does not answer."""

    def doctor(self) -> tuple[Finding, ...]:
        raise BackendError("no answer", hint="wait")


def by_the_server(settings: Settings | None = None) -> tuple[Finding, ...]:
    raise AssertionError("it was made with the server's own identity")


def doctor_of(engine: MemoryBackend, target: Path, *, threads: bool) -> Any:
    """Return what the bundle of a job says about the place."""
    job = MPIJob(name="bert", workers=1, command=("true",))
    if threads:

        async def made() -> None:
            async with AsyncClient(engine, settings=AT_A_CLUSTER) as client:
                await (await client.submit(job)).wait(10)
                await client.bundle("bert", target)

        asyncio.run(made())
    else:
        client = Client(engine, settings=AT_A_CLUSTER)
        client.run(job)
        client.bundle("bert", target)
    with tarfile.open(target) as packed:
        (name,) = (one for one in packed.getnames() if one.endswith("/doctor.json"))
        file = packed.extractfile(name)
        assert file is not None
        return json.load(file)


@pytest.mark.parametrize("threads", [True, False])
def test_a_bundle_tells_of_a_cluster_what_its_reader_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    monkeypatch.setattr(doctor, "report", by_the_server)
    told = doctor_of(Examined(), tmp_path / "b.tar.gz", threads=threads)
    assert [one["message"] for one in told] == ["seen as ann"]


@pytest.mark.parametrize("engine", [MemoryBackend, Silent])
@pytest.mark.parametrize("threads", [True, False])
def test_a_bundle_tells_nothing_of_a_cluster_where_its_reader_sees_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: type[MemoryBackend], threads: bool
) -> None:
    monkeypatch.setattr(doctor, "report", by_the_server)
    assert "missing" in doctor_of(engine(), tmp_path / "b.tar.gz", threads=threads)


def test_a_cluster_is_looked_at_as_the_visitor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def looked(settings: Settings, asked: Api | None = None) -> tuple[Finding, ...]:
        assert asked is not None
        seen.append(asked.access.token)
        return ()

    monkeypatch.setattr(versions, "report", looked)
    KubernetesBackend(AT_A_CLUSTER, ANN).doctor()
    assert seen == ["ann-token"]


# -- files of the server ----------------------------------------------------------------------------
def gone(ref: JobRef) -> Any:
    raise NotFound(f"no job '{ref.name}'")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Secret, ...]:
    """Secrets of a job that name a file and a variable of whoever reads them."""
    (tmp_path / "key").write_text("the server's own key")
    monkeypatch.setenv("SERVERS_OWN", "the server's own variable")
    return (Secret(env="A", source=f"file:{tmp_path}/key"), Secret(env="B", source="env:SERVERS_OWN"))


def test_secrets_of_a_visitors_job_are_not_looked_for_on_the_server(planted: tuple[Secret, ...]) -> None:
    ref = JobRef("cv", "bert")
    assert secret_values.known(Store(), ref, planted, gone, own_machine=False) == ()
    assert len(secret_values.known(Store(), ref, planted, gone, own_machine=True)) == 2


@pytest.mark.parametrize("visitor", [ANN, None])
def test_whose_machine_it_is_decides_whether_its_files_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visitor: Access | None
) -> None:
    asked: list[bool] = []

    def known(*told: Any, own_machine: bool) -> tuple[str, ...]:
        asked.append(own_machine)
        return ()

    monkeypatch.setattr(secret_values, "known", known)
    monkeypatch.setattr("mpijob.backends.kubernetes.auth.kubeconfig.load", lambda **_: ANN)
    KubernetesBackend(AT_A_CLUSTER, visitor).secret_values(JobRef("cv", "bert"), ())
    assert asked == [visitor is None]


def test_a_bundle_of_a_visitor_reads_no_file_that_the_job_names(
    planted: tuple[Secret, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Visited(Examined):
        def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
            return ()  # as a cluster's engine answers a visitor

    def read(secret: Secret) -> str:
        raise AssertionError(f"{secret.source} was read")

    client = Client(Visited(), settings=AT_A_CLUSTER)
    client.run(MPIJob(name="bert", workers=1, command=("true",), secrets=planted))
    monkeypatch.setattr(sources, "read_value", read)
    made = client.bundle("bert", tmp_path / "b.tar.gz")
    assert made.size


# -- files of a job ---------------------------------------------------------------------------------
class Left(MemoryBackend):
    """An engine whose jobs leave files."""

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        return tuple(Artifact(path, 5, 0.0) for path in ("out/a", "out/b", "one"))

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        if path not in ("out/a", "out/b", "one"):
            raise NotFound(f"the job has no output file {path!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("hello")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "./",
        "..",
        "/",
        "//",
        "out",
        "out/",
        "out/.",
        "./out/..",
        "a\x00b",
        "\udcff",
        "\n",
        "x" * 5000,
        "~",
        "*",
    ],
)
def test_a_path_that_is_no_file_of_the_job_is_refused_with_a_code(path: str) -> None:
    with served(Left()) as browser:
        answer = _asked(browser, path)
        assert answer.status_code in (400, 404), answer.text
        assert answer.json()["code"] in ("INVALID_JOB", "NOT_FOUND")


def _asked(browser: Browser, path: str) -> Any:
    browser.sign_in().create("tidy")
    return browser.get(f"/trainjobs/default/tidy/artifact?path={quote(path, errors='surrogateescape')}")


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["one", "one/", "out/a", "./out/b", "out//a"])
def test_a_file_of_the_job_is_handed_over(path: str) -> None:
    with served(Left()) as browser:
        answer = _asked(browser, path)
        assert (answer.status_code, answer.text) == (200, "hello")


def test_a_query_without_a_path_is_refused_with_a_code() -> None:
    with served(Left()) as browser:
        browser.sign_in().create("tidy")
        answer = browser.get("/trainjobs/default/tidy/artifact")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JOB")
