"""Before a job is sent: does the registry have its image? A real registry is asked; the cluster is in memory."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests import images
from tests.integration.registry import server
from tests.integration.registry.server import Server, login_file
from tests.unit.preflight_support import JANE, NAMESPACE, SERVED, FakeApi, a_job, one, with_gpus

from mpijob import admission
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.backends.registry import image_exists
from mpijob.backends.registry.image_exists import ImageLookup, reference_to_check
from mpijob.errors import Finding, InvalidJob, NotFound, Severity
from mpijob.model import MPIJob
from mpijob.model.platform.cluster import Asked, ImageAnswer
from mpijob.settings import Settings, load

HOST = "registry.example.com"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server.running(tmp_path_factory.mktemp("registry")) as found:
        found.push(images.good(), "team/mpi")
        yield found


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def settings(there: str, **more: str) -> Settings:
    """Return settings under which the registry of the test answers for a name."""
    return Settings(registries={HOST: there}, **more)  # type: ignore[arg-type]  # texts only are given


def at(registry: Server, **more: str) -> Settings:
    return settings(f"{registry.scheme}://{registry.address}", **more)


def of(name: str) -> MPIJob:
    return a_job(image=f"{HOST}/{name}")


def told(job: MPIJob, asker: ImageLookup, api: FakeApi | None = None) -> tuple[Finding, ...]:
    gathered = preflight.gather(api or with_gpus(), job, SERVED, Settings(), lookup=asker)
    return admission.admit(job, JANE, gathered.facts)


def about_image(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings if finding.code.startswith("IMAGE_")]


@pytest.mark.req("UC4")
def test_an_image_that_is_there_is_not_spoken_of_and_a_missing_one_is_warned_about(registry: Server) -> None:
    asker = ImageLookup(at(registry))
    assert about_image(told(of("team/mpi:1"), asker)) == []
    said = one(told(of("team/mpi:typo"), asker), "IMAGE_NOT_FOUND")
    assert said.severity is Severity.WARNING
    assert (said.message, said.field) == (f"registry {HOST} has no image {HOST}/team/mpi:typo", "image")
    assert said.hint


@pytest.mark.req("UC4")
def test_who_wants_it_so_is_refused_and_what_a_machine_has_is_not(registry: Server) -> None:
    asker = ImageLookup(at(registry, image_check="refuse"))
    with pytest.raises(NotFound, match="has no image") as caught:
        told(of("team/mpi:typo"), asker)
    assert "image_check" in caught.value.hint
    api = with_gpus()
    held = {"names": [f"{HOST}/team/mpi@sha256:{'a' * 64}", f"{HOST}/team/mpi:typo"], "sizeBytes": 1}
    node = api.objects[resources.NODE.path("", "gpu-0")]
    api.put(resources.NODE, "gpu-0", status={**node["status"], "images": [held]})
    assert "has it cached" in one(told(of("team/mpi:typo"), asker, api), "IMAGE_NOT_FOUND").message


@pytest.mark.req("UC4", "FR-INT-004")
@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_registry_that_wants_a_login_is_asked_with_the_users_own_or_with_the_jobs_pull_secret(
    auth: str, tmp_path: Path
) -> None:
    with server.running(tmp_path / "registry", auth=auth) as there:
        there.push(images.good(), "team/mpi")
        said = one(told(of("team/mpi:1"), ImageLookup(at(there))), "IMAGE_NOT_CHECKED")
        assert (said.severity, "login required" in said.message) == (Severity.NOTICE, True)
        login = login_file(tmp_path / "login.json", HOST)
        api = with_gpus()
        config = {".dockerconfigjson": base64.b64encode(login.read_bytes()).decode()}
        api.objects[resources.SECRET.path(NAMESPACE, "regcred")] = {
            "metadata": {"name": "regcred"},
            "data": config,
        }
        with_secret = of("team/mpi:1").replace(pull_secrets=("absent", "regcred"))
        assert about_image(told(with_secret, ImageLookup(at(there)), api)) == []
        missing = with_secret.replace(image=f"{HOST}/team/mpi:typo")
        assert about_image(told(missing, ImageLookup(at(there)), api)) == ["IMAGE_NOT_FOUND"]
        api.refused = {"secrets"}  # who may not read the secret is told so, and not stopped
        assert about_image(told(with_secret, ImageLookup(at(there)), api)) == ["IMAGE_NOT_CHECKED"]
        login_file(tmp_path / "home" / ".docker" / "config.json", HOST)
        assert about_image(told(of("team/mpi:1"), ImageLookup(at(there)))) == []


@contextmanager
def silent() -> Iterator[str]:
    """Yield the address of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        yield f"http://127.0.0.1:{line.getsockname()[1]}"


@pytest.mark.req("UC4")
def test_a_registry_that_does_not_answer_costs_two_seconds_once_and_stops_nothing() -> None:
    with silent() as there:
        asker = ImageLookup(settings(there))
        began = time.monotonic()
        said = one(told(of("team/mpi:1"), asker), "IMAGE_NOT_CHECKED")
        assert (
            image_exists.TIMEOUT_SECONDS * 0.9 < time.monotonic() - began < image_exists.TIMEOUT_SECONDS + 1.5
        )
        assert said.severity is Severity.NOTICE
        deadline = time.monotonic() + 5
        while (
            asker._cached(f"{HOST}/team/mpi:1|{NAMESPACE}") is None
        ):  # it is noted when its thread has ended
            assert time.monotonic() < deadline
            time.sleep(0.01)
        began = time.monotonic()
        assert about_image(told(of("team/mpi:1"), asker)) == ["IMAGE_NOT_CHECKED"]
        assert time.monotonic() - began < 0.5


@pytest.mark.req("UC4")
def test_what_was_asked_lately_is_not_asked_again_also_by_another_process(
    registry: Server, tmp_path: Path
) -> None:
    now = 1000.0
    given = at(registry, home=str(tmp_path))
    first = ImageLookup(given, lambda: now)
    assert about_image(told(of("team/mpi:1"), first)) == []
    deaf = settings("http://127.0.0.1:1", home=str(tmp_path))  # nobody is there: whoever asks gets no answer
    assert about_image(told(of("team/mpi:1"), ImageLookup(deaf, lambda: now))) == []
    now += image_exists.CACHE_SECONDS[Asked.THERE] + 1
    assert about_image(told(of("team/mpi:1"), ImageLookup(deaf, lambda: now))) == ["IMAGE_NOT_CHECKED"]


@pytest.mark.req("UC4")
def test_that_an_image_is_missing_is_never_remembered(registry: Server) -> None:
    asker = ImageLookup(at(registry))
    assert about_image(told(of("team/late:1"), asker)) == ["IMAGE_NOT_FOUND"]
    registry.push(images.good(), "team/late")
    assert about_image(told(of("team/late:1"), asker)) == []


def test_a_file_of_answers_that_is_broken_or_cannot_be_written_changes_nothing(
    registry: Server, tmp_path: Path
) -> None:
    (tmp_path / "registries.json").write_text("no JSON")
    assert about_image(told(of("team/mpi:1"), ImageLookup(at(registry, home=str(tmp_path))))) == []
    assert (tmp_path / "registries.json").read_text().startswith("{")
    assert about_image(told(of("team/mpi:1"), ImageLookup(at(registry, home=str(tmp_path / "none"))))) == []


@pytest.mark.req("UC4", "FR-INT-004")
@pytest.mark.parametrize(
    "image",
    [
        "",
        "image-registry.openshift-image-registry.svc:5000/team/mpi:1",
        "registry.tools.svc.cluster.local/mpi:1",
        "testbed.local/mpi:1",
        "registry:5000/mpi:1",
        "localhost:5000/mpi:1",
        "127.0.0.1:5000/mpi:1",
        "mpijob.invalid/none:1",
        "NOT A NAME",
    ],
)
def test_registries_that_only_a_cluster_knows_are_not_asked(image: str) -> None:
    assert reference_to_check(image, Settings()) is None
    assert ImageLookup(Settings()).start(a_job(image=image), lambda _: None)() is None


def test_a_registry_may_be_left_alone_by_setting(tmp_path: Path) -> None:
    assert reference_to_check("quay.example.org/a:1", Settings()) is not None
    assert (
        reference_to_check("quay.example.org/a:1", load({"MPIJOB_IMAGE_CHECK": "off", "HOME": str(tmp_path)}))
        is None
    )
    assert (
        reference_to_check("quay.example.org/a:1", Settings(registries={"quay.example.org": "off"})) is None
    )
    with pytest.raises(InvalidJob, match="MPIJOB_IMAGE_CHECK is 'of'; expected one of warn, refuse, off"):
        load({"MPIJOB_IMAGE_CHECK": "of", "HOME": str(tmp_path)})


def test_the_registry_is_asked_beside_the_cluster_and_not_after_it() -> None:
    class Slow(ImageLookup):
        def start(self, job: MPIJob, secrets: image_exists.GetSecret) -> image_exists.WaitForResult:
            began.append(threading.get_ident())
            return lambda: ImageAnswer(image=job.image, asked=Asked.THERE)

    class Api(FakeApi):
        def _look(self, path: str) -> None:
            assert began, "the cluster was asked first"
            super()._look(path)

    began: list[int] = []
    gathered = preflight.gather(Api(), a_job(), SERVED, Settings(), lookup=Slow(Settings()))
    assert gathered.facts.cluster is not None
    assert gathered.facts.cluster.image == ImageAnswer(image="example/mpi:1", asked=Asked.THERE)
    assert msgspec.json.encode(gathered.facts.cluster.image)
